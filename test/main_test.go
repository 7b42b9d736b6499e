// Package test contains the end to end tests of KEB with the built keb.
package test

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Tests{M: m}) }

// limit is the time limit for one condition. It is generous for busy machines.
const limit = 90 * time.Second

// operations returns the number of operations in flight in the tests that kill: 24, or KEB_E2E_OPERATIONS.
func operations(t *testing.T) int {
	t.Helper()
	return int(testkit.Number(t, "KEB_E2E_OPERATIONS", 24, 1))
}

// random is seeded by the clock, or by KEB_E2E_SEED to repeat a run as far as possible.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := testkit.Number(t, "KEB_E2E_SEED", uint64(time.Now().UnixNano()%1_000_000), 0)
	t.Logf("KEB_E2E_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

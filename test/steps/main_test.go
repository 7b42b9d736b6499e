package steps_test

import (
	"os"
	"testing"

	"github.com/kyma-project/keb/libs/testkit"
)

// A world is sequential. The step workers have tests of their own with the race detector, and so has the whole of keb in test/.
func TestMain(m *testing.M) { os.Exit(testkit.WithoutRace(m.Run)) }

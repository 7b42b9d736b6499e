package broker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkit.Tests{M: m}) }

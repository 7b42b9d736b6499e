package broker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

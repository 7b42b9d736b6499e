//go:build linux

package upgrade

import (
	"os"
	"testing"

	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Tests{M: m}.Run()) }

package service_test

import (
	"runtime/debug"
	"testing"

	"github.com/kyma-project/keb/libs/service"
)

func TestTuneGC_GOGCSet_IsKept(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "100")
	service.TuneGC()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC=100 the collector is at %d", got)
	}
	t.Setenv("GOGC", "")
	service.TuneGC()
	if got := debug.SetGCPercent(100); got <= 100 {
		t.Errorf("without GOGC the collector is at %d", got)
	}
}

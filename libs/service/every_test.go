package service_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/service"
)

func TestEvery_Error_IsRetriedUntilEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	calls := 0
	err := service.Every(ctx, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)), "sweep", func(context.Context) error {
		if calls++; calls == 3 {
			cancel()
			return nil
		}
		return errors.New("not now")
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if n := strings.Count(log.String(), "background work failed, trying again\" work=sweep"); n != 2 {
		t.Errorf("%d failures in the log, want 2:\n%s", n, log.String())
	}
}

package census_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/census"
)

func TestCache_SlowSource_ExtendsTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var found atomic.Int32
		v := census.NewValue(func(context.Context) (int32, error) {
			<-time.After(time.Second) // fake time
			return found.Add(1), nil
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if n, err := v.Get(t.Context()); n != 1 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		all.Wait()
		<-time.After(9 * time.Second)
		if n, _ := v.Get(t.Context()); n != 1 {
			t.Error("a value that took 1 s to read is read again after 9 s")
		}
		<-time.After(2 * time.Second)
		if n, _ := v.Get(t.Context()); n != 2 {
			t.Error("a value that took 1 s to read is still cached after 11 s")
		}
	})
}

func TestCache_VerySlowSource_LimitsTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		v := census.NewValue(func(context.Context) (int, error) {
			<-time.After(8 * time.Second)
			calls++
			return calls, nil
		})
		if n, err := v.Get(t.Context()); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		<-time.After(31 * time.Second)
		if n, _ := v.Get(t.Context()); n != 2 {
			t.Error("a value is still cached after 31 s")
		}
	})
}

func TestCache_WaitingCaller_HonorsItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := census.NewValue(func(context.Context) (int, error) {
			<-time.After(time.Minute)
			return 1, nil
		})
		var first sync.WaitGroup
		first.Go(func() { _, _ = v.Get(t.Context()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := v.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %s, want the end of the context after a second", err, time.Since(begin))
		}
		first.Wait()
	})
}

func TestCache_FirstCallerCancels_OthersGetTheValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		v := census.NewValue(func(ctx context.Context) (int, error) {
			calls++
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Second):
				return calls, nil
			}
		})
		hangsUp, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = v.Get(hangsUp) })
		synctest.Wait()
		wait.Go(func() {
			if n, err := v.Get(t.Context()); n != 1 || err != nil {
				t.Errorf("the waiting caller gets %d, %v; want 1", n, err)
			}
		})
		synctest.Wait()
		cancel()
		wait.Wait()
		late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-time.After(time.Minute)
		if _, err := v.Get(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want the end of the deadline", err)
		}
	})
}

func TestCache_SourceFails_NextCallRetries(t *testing.T) {
	t.Parallel()
	away, calls := errors.New("away"), 0
	v := census.NewValue(func(context.Context) (int, error) {
		if calls++; calls == 1 {
			return 7, away
		}
		return calls, nil
	})
	if n, err := v.Get(t.Context()); n != 0 || !errors.Is(err, away) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := v.Get(t.Context()); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

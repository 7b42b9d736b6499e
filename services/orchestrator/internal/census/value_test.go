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
			<-time.After(time.Second) // of the bubble: no time passes
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
			t.Errorf("what took a second to find is found again after 9")
		}
		<-time.After(2 * time.Second)
		if n, _ := v.Get(t.Context()); n != 2 {
			t.Errorf("after 11 seconds it is still the old one")
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
			t.Error("an answer of 31 seconds is still given")
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
				t.Errorf("who waits gets %d, %v", n, err)
			}
		})
		synctest.Wait()
		cancel()
		wait.Wait()
		late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-time.After(time.Minute)
		if _, err := v.Get(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its deadline somebody still looks for an answer: %v", err)
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

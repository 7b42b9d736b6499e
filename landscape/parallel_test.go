package landscape_test

import (
	"fmt"
	"sync"
	"testing"
)

func TestProvisioner_FiveHundredInParallel_Succeed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const n, clients = 500, 32
	work := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := range work {
				if _, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput(fmt.Sprint("i-", i), fmt.Sprint("c-", i))}); failure != nil {
					t.Error(failure)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	w.clock.Advance(clusterTime)
	for system, kind := range map[string]string{"provisioner": "runtime", "director": "runtime", "gardener": "Shoot", "runtimes": "cluster"} {
		if now, ever := w.held(system, kind); now != n || ever != n {
			t.Errorf("%s holds %d of kind %s of %d ever created, want %d", system, now, kind, ever, n)
		}
	}
}

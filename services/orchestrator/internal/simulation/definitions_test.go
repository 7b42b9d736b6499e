package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// poolSize is the number of sets of definitions in a pool.
const poolSize = 48

// pools creates sets of process definitions on demand, and caches those of the newest pool.
type pools struct {
	mu   sync.Mutex
	pool uint64
	sets [poolSize]process.Set
}

// set returns one set of a pool. The first two are equal in every pool: the smallest one, and one with all features.
func (p *pools) set(pool uint64, n uint16) process.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool != p.pool {
		p.pool, p.sets = pool, [poolSize]process.Set{}
	}
	n %= poolSize
	if p.sets[n] == nil {
		set, err := process.Load(definitions(pool, n))
		if err != nil {
			panic(fmt.Sprintf("set %d of pool %d: %v", n, pool, err))
		}
		p.sets[n] = set
	}
	return p.sets[n]
}

var builtIn = map[event.OperationType]string{
	event.Provision: "Starting", event.Deprovision: "Init_Step", event.UpgradeKyma: "Upgrade_Kyma_Initialisation",
	event.UpgradeCluster: "Upgrade_Cluster_Initialisation", event.Update: "Update_Kyma_Initialization",
}

func definitions(pool uint64, n uint16) fstest.MapFS {
	files := fstest.MapFS{}
	rng := rand.New(rand.NewPCG(pool, uint64(n)))
	for _, t := range event.OperationTypes() {
		var text string
		switch n {
		case 0:
			text = fmt.Sprintf("operation: %s\ntimeout: 1h\nstages:\n  - name: one\n    steps:\n      - {name: A, worker: alpha, retry: {timeout: 5m}}\n", t)
		case 1:
			text = fmt.Sprintf(middle, t, builtIn[t])
		default:
			text = random(rng, t)
		}
		files[string(t)+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

const middle = `
operation: %s
timeout: 1h
stages:
  - name: start
    steps:
      - {name: %s, worker: orchestrator}
  - name: create
    steps:
      - {name: A, worker: alpha, retry: {every: 10s, timeout: 5m}}
      - {name: B, worker: beta, retry: {every: 10s, max: 1m, factor: 2, jitter: 0.2, timeout: 5m}}
      - {name: C, worker: beta, retry: {every: 30s, timeout: 2m, scope: step}, wait: {every: 1m, timeout: 10m}}
  - name: finish
    steps:
      - {name: D, worker: alpha, when: 'plan.name != "trial"', onFailure: skip, onTimeout: skip, retry: {every: 10s, timeout: 1m}, wait: {timeout: 5m}}
      - {name: E, worker: beta, retry: {every: 10s}, wait: {every: 1m}}
finally:
  - {name: F, worker: alpha, retry: {every: 10s, timeout: 2m}}
  - {name: G, worker: beta, when: 'plan.name != "trial"', retry: {every: 10s, timeout: 1m, scope: step}, wait: {timeout: 3m}}
`

// conditions use the data of the operations in a schedule; the last one cannot be evaluated.
var conditions = []string{
	`plan.name != "trial"`, `plan.name == "trial"`, `has(details.alpha)`, `!has(details.beta)`, `details.gamma.missing == 1`,
}

// growths are the settings of growing retry intervals; the ones without any are the most frequent.
var growths = []string{"", "", ", jitter: 1", ", max: 2m, factor: 2", ", max: 1m, factor: 3.5, jitter: 0.5"}

// random generates a valid definition.
func random(rng *rand.Rand, t event.OperationType) string {
	var b strings.Builder
	one := func(in int) bool { return rng.IntN(in) == 0 }
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	fmt.Fprintf(&b, "operation: %s\ntimeout: %s\nstages:\n", t, pick("20m", "1h", "3h", "24h"))
	step := byte('A')
	line := func(indent string, finally bool) {
		fmt.Fprintf(&b, "%s- {name: %c, worker: %s", indent, step, pick("alpha", "beta"))
		step++
		if one(4) {
			condition := conditions[rng.IntN(len(conditions)-1)]
			if one(8) {
				condition = conditions[len(conditions)-1]
			}
			fmt.Fprintf(&b, ", when: '%s'", condition)
		}
		if one(2) {
			fmt.Fprintf(&b, ", execution: %s", pick("10s", "1m", "5m"))
		}
		if one(4) && !finally {
			b.WriteString(", onFailure: skip")
		}
		budget, wait := pick("", ", timeout: 30s", ", timeout: 2m", ", timeout: 5m"), ""
		if one(2) {
			wait = pick("{every: 20s, timeout: 1m}", "{timeout: 5m}", "{every: 2m, timeout: 3m}")
		}
		if budget != "" && one(3) {
			b.WriteString(", onTimeout: skip")
		} else if one(3) && !finally {
			budget = ", timeout: 15m"
			if wait != "" {
				wait = pick("{every: 30s}", "{every: 5s, timeout: 15m}")
			}
		}
		if wait != "" {
			fmt.Fprintf(&b, ", wait: %s", wait)
		}
		if one(4) {
			b.WriteString(", noWorker: wait")
		}
		growth := growths[b.Len()%len(growths)]
		fmt.Fprintf(&b, ", retry: {every: %s%s%s, scope: %s}}\n", pick("1s", "10s", "1m"), growth, budget, pick("stage", "stage", "step"))
	}
	stages := 1 + rng.IntN(4)
	first := one(2)
	for i := range stages {
		fmt.Fprintf(&b, "  - name: s%d\n    steps:\n", i)
		if i == 0 && first {
			fmt.Fprintf(&b, "      - {name: %s, worker: orchestrator}\n", builtIn[t])
		}
		for range 1 + rng.IntN(4) {
			line("      ", false)
		}
	}
	if one(2) {
		b.WriteString("finally:\n")
		for range 1 + rng.IntN(3) {
			line("  ", true)
		}
	}
	return b.String()
}

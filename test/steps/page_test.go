package steps_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
	"github.com/kyma-project/keb/services/orchestrator/processes"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

// processSet is the processes under a title.
type processSet struct {
	Title, Intro string
	Overlays     []fs.FS
}

const head = `# Steps

Every step of every operation, in the order in which they run. This page is generated from the process files and from what the
steps tell of themselves (` + "`go generate ./...` in `test`" + `); tests compare it with what the steps really call and save.

- **When**: the condition; a step whose condition is false is skipped, visibly.
- **Retry**: the time between two tries and the budget, which runs from the first try and holds across restarts; (step) means that the
  step alone is repeated, otherwise the stage is from its first step. *Waits* is the same for looks that find nothing wrong: such a step
  has two budgets, and the one for retries counts only errors since the last look that worked.
- **If not**: what becomes of the operation when the step fails or a budget is spent: it *fails*, or the step is recorded as
  *not completed* and the operation goes on.
- **Calls**: the external systems, by the names that the scope of a [hold](operator.md#hold-operations) uses; a step without calls
  counts as one that calls a system with the name of its worker. **Saves**: what stays in the operation's details, under the worker's key; **Stage memory**: what later steps of the stage get.
`

// stepsPage returns the page.
func stepsPage() ([]byte, error) {
	described, err := descriptions()
	if err != nil {
		return nil, err
	}
	overlay, err := fs.Sub(processes.Overlays, "overlays")
	if err != nil {
		return nil, fmt.Errorf("open the overlays: %w", err)
	}
	var out strings.Builder
	out.WriteString(head)
	for _, set := range []processSet{
		{Title: "", Intro: ""},
		{
			Title: "With the overlay kyma-1",
			Intro: "The systems of the older documents, off by default: docs/operator.md says how to switch it on. " +
				"Operations that the overlay does not change are left out.",
			Overlays: []fs.FS{overlay},
		},
	} {
		if err := write(&out, set, described); err != nil {
			return nil, err
		}
	}
	return []byte(out.String()), nil
}

func descriptions() (map[string]worker.Description, error) {
	services, err := stepworkers.All("http://127.0.0.1:8090", stepworkers.Options{})
	if err != nil {
		return nil, fmt.Errorf("make the steps: %w", err)
	}
	all := map[string]worker.Description{}
	for name, summary := range orchestrator.BuiltInSteps() {
		all[process.WorkerOrchestrator+"/"+name] = worker.Description{Summary: summary}
	}
	for name, d := range broker.DescribeSteps() {
		all["broker/"+name] = d
	}
	for _, s := range services {
		for _, step := range s.Steps {
			d, ok := worker.Describe(step)
			if !ok {
				return nil, fmt.Errorf("step %s of worker %s does not describe itself", step.Name(), s.Name)
			}
			all[s.Name+"/"+step.Name()] = d
		}
	}
	return all, nil
}

var titles = map[event.OperationType]string{
	event.Provision: "Provisioning", event.Deprovision: "Deprovisioning", event.Update: "Update",
	event.UpgradeKyma: "Upgrade of Kyma", event.UpgradeCluster: "Upgrade of the cluster",
}

func write(out *strings.Builder, set processSet, described map[string]worker.Description) error {
	all, err := process.Load(processes.FS, set.Overlays...)
	if err != nil {
		return fmt.Errorf("load the processes: %w", err)
	}
	plain, err := process.Load(processes.FS)
	if err != nil {
		return fmt.Errorf("load the processes: %w", err)
	}
	level := "##"
	if set.Title != "" {
		fmt.Fprintf(out, "\n## %s\n\n%s\n", set.Title, set.Intro)
		level = "###"
	}
	for _, t := range event.OperationTypes() {
		p := all[t]
		if p == nil || len(set.Overlays) > 0 && p.Equal(plain[t]) {
			continue
		}
		fmt.Fprintf(out, "\n%s %s\n\n`%s.yaml`; the operation may take %s.\n\n", level, titles[t], t, period(p.Timeout))
		out.WriteString("| Stage | Step | Worker | What it does | When | Retry | If not | Calls | Saves | Stage memory |\n")
		out.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
		for _, stage := range p.Stages {
			for i := range stage.Steps {
				s := &stage.Steps[i]
				d, ok := described[s.Worker+"/"+s.Name]
				if !ok {
					return fmt.Errorf("no worker serves the step %s of worker %s in %s.yaml", s.Name, s.Worker, t)
				}
				if err := row(out, stage.Name, t, s, d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// calledSystems returns the systems that the process file must give a step.
func calledSystems(s *process.Step, d worker.Description) []string {
	if s.BuiltIn() {
		return nil
	}
	var systems []string
	for _, c := range d.Calls {
		systems = append(systems, c.System)
	}
	if len(systems) == 0 {
		systems = []string{s.Worker}
	}
	slices.Sort(systems)
	return slices.Compact(systems)
}

func row(out *strings.Builder, stage string, t event.OperationType, s *process.Step, d worker.Description) error {
	retry, otherwise := "", ""
	if !s.BuiltIn() {
		retry = "every " + limit(s.Retry.Every, s.Retry.Timeout)
		if s.Waits() {
			retry += "; waits every " + limit(s.Wait.Every, s.Wait.Timeout)
		}
		if s.Retry.Scope == process.ScopeStep {
			retry += " (step)"
		}
		otherwise = "fails"
		switch {
		case s.OnFailure == process.Skip && s.OnTimeout == process.Skip:
			otherwise = "not completed"
		case s.OnTimeout == process.Skip:
			otherwise = "fails; not completed when the budget is spent"
		case s.OnFailure == process.Skip:
			otherwise = "not completed; fails when the budget is spent"
		}
	}
	if want := calledSystems(s, d); !slices.Equal(s.CalledSystems(), want) {
		return fmt.Errorf("%s.yaml: the step %s has the systems %v, want those that it calls: %v", t, s.Name, s.CalledSystems(), want)
	}
	calls := make([]string, len(d.Calls))
	for i, c := range d.Calls {
		calls[i] = c.System + ": `" + c.Operation + "`"
	}
	when := ""
	if s.When != "" {
		when = "`" + s.When + "`"
	}
	cells := []string{
		stage, "`" + s.Name + "`", s.Worker, d.Summary, when, retry, otherwise, strings.Join(calls, "<br>"), quoted(d.Details), quoted(d.StageMemory),
	}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", "\\|")
	}
	out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	return nil
}

func limit(every, timeout time.Duration) string {
	if timeout == 0 {
		return period(every)
	}
	return period(every) + " for " + period(timeout)
}

func quoted(names []string) string {
	names = slices.Clone(names)
	for i := range names {
		names[i] = "`" + names[i] + "`"
	}
	return strings.Join(names, ", ")
}

// period is a duration as the process files write it: 24h and not 24h0m0s.
func period(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

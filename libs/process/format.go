package process

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// The types of this file, Step, Retry and Wait state the format of process files and overlays once. The reader takes the keys of a mapping
// from them. docs/overlays.md and api/process.schema.json are generated from their names, tags and comments. The tags:
//   - yaml is the key; with the option inline, the keys of the member are those of the outer mapping, except those in the tag without;
//   - required marks a key that must be present;
//   - default is the value of an absent key, in the form of the file;
//   - format is name, condition or step: what a string must be;
//   - minimum and maximum limit a number;
//   - example is a part of a file that is valid where the type is used.

// NamePattern is a regular expression for the names of stages, steps, workers and systems, which are tokens of NATS subjects.
const NamePattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`

// A process file defines an operation type: its stages and their steps. It has one YAML document, and the name of the operation type, such
// as `update.yaml`. The built-in files are in `services/orchestrator/processes`; a team changes them with overlays.
//
//	operation: update
//	timeout: 4h
//	stages:
//	  - name: start
//	    steps:
//	      - {name: Starting, worker: orchestrator}
//	  - name: greet
//	    steps:
//	      - {name: Hello_World, worker: hello-world, retry: {every: 10s, timeout: 10m}}
//	finally:
//	  - {name: Goodbye_World, worker: hello-world}
type processFile struct {
	// Operation is the operation type.
	Operation event.OperationType `yaml:"operation" required:"true" example:"operation: update"`
	// Timeout limits the operation, from its start.
	Timeout time.Duration `yaml:"timeout" default:"24h" example:"timeout: 4h"`
	// Stages run in order.
	Stages []stageFile `yaml:"stages" required:"true" example:"stages: [{name: start, steps: [{name: Starting, worker: orchestrator}]}]"`
	// Finally lists the steps that run at every end of the operation: after the last stage, a failure, a timeout or a cancellation. They
	// have 15 minutes together, and never decide the outcome of the operation.
	Finally []Step `yaml:"finally" example:"finally: [{name: Goodbye_World, worker: hello-world}]"`
}

// A stage is a group of steps that share the stage memory. An error repeats the stage from its first step; a finished stage never runs
// again, unless an operator retries a failed operation from it.
//
//	operation: provision
//	changes:
//	  - addStage: {name: audit, steps: [{name: Audit, worker: hello-world}, {name: Audit_Report, worker: hello-world}]}
type stageFile struct {
	// Name must be unique in the process. The name `finally` is reserved.
	Name string `yaml:"name" required:"true" format:"name" example:"name: audit"`
	// Steps run in order; there must be at least one.
	Steps []Step `yaml:"steps" required:"true" example:"steps: [{name: Hello_World, worker: hello-world}]"`
}

// An overlay is a folder whose files change process files. Its files (`*.yaml`, `*.yml`, not those in subfolders) apply in the order of
// their names; several folders (`--overlays A,B` or `KEB_OVERLAYS`) apply in the given order. A file has one or more YAML documents,
// separated by `---`, and each document changes one operation type. The rules apply to the result of all changes.
//
//	operation: provision
//	changes:
//	  - add: {after: Get_Kubeconfig, step: {name: Hello_World, worker: hello-world, when: plan.name == "aws"}}
//	  - disable: EDP_Registration
//	---
//	operation: upgradeKyma
//	changes:
//	  - retime: {timeout: 4h}
type overlayFile struct {
	// Operation is the operation type whose process changes; [steps.md](steps.md) lists the stages and steps of each.
	Operation event.OperationType `yaml:"operation" required:"true" example:"operation: provision"`
	// Changes apply from top to bottom. A later change sees the earlier ones.
	Changes []change `yaml:"changes" required:"true" example:"changes: [disable: EDP_Registration]"`
}

// Each item of `changes` has exactly one of these keys.
//
//	operation: provision
//	changes:
//	  - add: {after: Get_Kubeconfig, step: {name: Hello_World, worker: hello-world}}
//	  - addStage: {after: create_runtime, name: audit, steps: [{name: Audit, worker: hello-world, retry: {timeout: 5m}}]}
//	  - move: {step: AVS_Create_Internal_Eval_Step, after: Check_Runtime}
//	  - disable: EDP_Registration
//	  - retime: {step: Check_Cluster_Configuration, wait: {timeout: 3h}}
type change struct {
	// Add adds a step.
	Add *addStep `yaml:"add" example:"add: {after: Get_Kubeconfig, step: {name: Hello_World, worker: hello-world}}"`
	// AddStage adds a stage with its steps.
	AddStage *addStage `yaml:"addStage" example:"addStage: {name: audit, steps: [{name: Audit, worker: hello-world}]}"`
	// Move moves a step, also into another stage.
	Move *moveStep `yaml:"move" example:"move: {step: AVS_Tags, before: AVS_Create_External_Eval_Step}"`
	// Disable removes the step with this name. A stage that has no steps left is removed, too.
	Disable string `yaml:"disable" format:"step" example:"disable: EDP_Registration"`
	// Retime replaces settings of a step, or the timeout of the operation.
	Retime *retime `yaml:"retime" example:"retime: {step: Check_Runtime, wait: {timeout: 8h}}"`
}

// The place of the step is before or after another step, or the end of a stage. A `stage` beside `before` or `after` must be the stage of
// that step.
//
//	operation: deprovision
//	changes:
//	  - add: {before: Remove_Runtime, step: {name: Goodbye_World, worker: hello-world, retry: {timeout: 5m}, onTimeout: skip}}
//	  - add: {stage: finally, step: {name: Report, worker: hello-world, retry: {every: 5s, timeout: 2m}}}
type addStep struct {
	// Stage is the stage that gets the step as its last one, if neither `before` nor `after` is given. The stage `finally` need not exist.
	Stage string `yaml:"stage" format:"name" example:"add: {stage: finally, step: {name: Goodbye_World, worker: hello-world}}"`
	// Before is the step that follows the new one.
	Before string `yaml:"before" format:"step" example:"add: {before: AVS_Tags, step: {name: Hello_World, worker: hello-world}}"`
	// After is the step that precedes the new one.
	After string `yaml:"after" format:"step" example:"add: {after: AVS_Tags, step: {name: Hello_World, worker: hello-world}}"`
	// Step is the step to add.
	Step Step `yaml:"step" required:"true" example:"add: {stage: post_actions, step: {name: Hello_World, worker: hello-world}}"`
}

// The place of the stage is before or after another stage. Without a place, the stage is the last one before the stage `finally`.
//
//	operation: provision
//	changes:
//	  - addStage:
//	      after: create_runtime
//	      name: audit
//	      steps:
//	        - {name: Audit, worker: hello-world, retry: {every: 10s, timeout: 5m}}
//	        - {name: Audit_Report, worker: hello-world, onFailure: skip}
type addStage struct {
	// Before is the stage that follows the new one.
	Before string `yaml:"before" format:"name" example:"addStage: {before: check_kyma, name: audit, steps: [{name: Audit, worker: hello-world}]}"`
	// After is the stage that precedes the new one.
	After string    `yaml:"after" format:"name" example:"addStage: {after: check_kyma, name: audit, steps: [{name: Audit, worker: hello-world}]}"`
	Stage stageFile `yaml:",inline"`
}

// The new place is given as for `add`.
//
//	operation: provision
//	changes:
//	  - move: {step: AVS_Create_Internal_Eval_Step, after: Check_Runtime}
//	  - move: {step: EDP_Registration, stage: post_actions}
type moveStep struct {
	// Step is the step to move.
	Step string `yaml:"step" required:"true" format:"step" example:"move: {step: EDP_Registration, stage: post_actions}"`
	// Stage is the stage that gets the step as its last one, if neither `before` nor `after` is given.
	Stage string `yaml:"stage" format:"name" example:"move: {step: AVS_Tags, stage: create_kyma_resource}"`
	// Before is the step that follows at the new place.
	Before string `yaml:"before" format:"step" example:"move: {step: AVS_Tags, before: AVS_Create_External_Eval_Step}"`
	// After is the step that precedes at the new place.
	After string `yaml:"after" format:"step" example:"move: {step: AVS_Create_Internal_Eval_Step, after: Check_Runtime}"`
}

// Give either `timeout` alone, or `step` with the settings to replace. Of `retry` and `wait` only the given members change.
//
//	operation: upgradeKyma
//	changes:
//	  - retime: {timeout: 8h}
//	  - retime: {step: Check_Cluster_Configuration, wait: {timeout: 3h}, retry: {every: 2m}}
type retime struct {
	// Step is the step whose settings are replaced.
	Step string `yaml:"step" format:"step" example:"retime: {step: Check_Runtime, execution: 2m}"`
	// Timeout replaces the timeout of the operation. It excludes all other keys.
	Timeout  time.Duration `yaml:"timeout" example:"retime: {timeout: 30h}"`
	Settings Step          `yaml:",inline" without:"name,worker"`
}

// keys returns the keys of a mapping, in the order of the members of its type.
func keys[T any]() []string { return keysOf(reflect.TypeFor[T]()) }

func keysOf(t reflect.Type) []string {
	var found []string
	for field := range t.Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			without := strings.Split(field.Tag.Get("without"), ",")
			found = append(found, slices.DeleteFunc(keysOf(field.Type), func(k string) bool { return slices.Contains(without, k) })...)
		case key != "":
			found = append(found, key)
		}
	}
	return found
}

package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
)

// Case is a command with its expected answer.
type Case struct {
	// Name describes the case.
	Name string `yaml:"name"`
	// Step is the step of the command.
	Step string `yaml:"step"`
	// Operation is the type of the operation; empty means provision. Plan is the name of its plan; empty means azure.
	Operation event.OperationType `yaml:"operation"`
	Plan      string              `yaml:"plan"`
	// Context, Runtime, Update and Upgrade are those of event.Operation, with their names in JSON.
	Context map[string]any `yaml:"context"`
	Runtime map[string]any `yaml:"runtime"`
	Update  map[string]any `yaml:"update"`
	Upgrade map[string]any `yaml:"upgrade"`
	// Parameters are the parameters of the order, Details the saved details by worker.
	Parameters map[string]any `yaml:"parameters"`
	Details    map[string]any `yaml:"details"`
	// Credentials are the credentials that the worker can claim, by name. They are secret: the worker must not repeat their values.
	Credentials map[string]any `yaml:"credentials"`
	// Remembered holds the stage memory of earlier steps, written with the SDK. It is secret, too.
	Remembered map[string]string `yaml:"remembered"`
	// Event is the event that the step has waited for; nil if none has come.
	Event *CaseEvent `yaml:"event"`
	// Takes is the approximate duration of the step. The checks of long steps need more than the ack wait (5 s).
	Takes Duration `yaml:"takes"`
	// Only excludes the case from the other checks.
	Only bool `yaml:"only"`
	// Cleanup marks a case whose command is sent at the end for each instance, to remove what the steps have made. It is sent to no other
	// check.
	Cleanup bool `yaml:"cleanup"`
	// Expect is the expected answer; empty means any.
	Expect Expectation `yaml:"expect"`
}

// Expectation describes the expected answer. Empty fields are not compared.
type Expectation struct {
	// Outcome is one of succeeded, retry, failed, skipped, "not completed" and "stage lost".
	Outcome event.Outcome `yaml:"outcome"`
	// RetryAfter is the delay of a retry.
	RetryAfter Duration `yaml:"retryAfter"`
	// Event is the key of the event that the step waits for; {operation} in it stands for the id of the operation.
	Event string `yaml:"event"`
	// Component and Reason are the fields of the error.
	Component string `yaml:"component"`
	Reason    string `yaml:"reason"`
	// Details are the required members of the patch.
	Details map[string]any `yaml:"details"`
}

// CaseEvent is an event with any JSON as data.
type CaseEvent struct {
	Key  string `yaml:"key"`
	Data any    `yaml:"data"`
}

// Duration is a time.Duration in the YAML format "15s".
type Duration time.Duration

// UnmarshalYAML reads "15s".
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := time.ParseDuration(node.Value)
	if err != nil || parsed < 0 {
		return fmt.Errorf("line %d: %q is no time: want for example 15s", node.Line, node.Value)
	}
	*d = Duration(parsed)
	return nil
}

// Limits for the problems of a file.
const (
	maxCasesFile = 1 << 20
	maxCases     = 200
)

// ReadCases reads a YAML file with the only key "cases". Errors contain the line or the field.
func ReadCases(r io.Reader) ([]Case, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxCasesFile+1))
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	if len(raw) > maxCasesFile {
		return nil, fmt.Errorf("read cases: more than %d bytes", maxCasesFile)
	}
	var file struct {
		Cases []Case `yaml:"cases"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("read cases: the file is empty: want the key cases with a list")
		}
		return nil, fmt.Errorf("read cases: %w", err)
	}
	if len(file.Cases) == 0 {
		return nil, errors.New("read cases: there is none: want the key cases with a list")
	}
	if len(file.Cases) > maxCases {
		return nil, fmt.Errorf("read cases: %d cases, at most %d are allowed", len(file.Cases), maxCases)
	}
	var problems []error
	for i := range file.Cases {
		if err := file.Cases[i].validate(); err != nil {
			problems = append(problems, fmt.Errorf("cases[%d]: %w", i, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	return file.Cases, nil
}

func (c *Case) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("case %q: %w", c.Name, fmt.Errorf(format, args...))
	}
	outcomes := []event.Outcome{
		"", event.OutcomeSucceeded, event.OutcomeRetry, event.OutcomeFailed, event.OutcomeSkipped, event.OutcomeNotCompleted, event.OutcomeStageLost,
	}
	switch {
	case c.Name == "":
		return errors.New("name is missing")
	case !isStepName(c.Step):
		return bad("step %q: use letters, digits, hyphens and underscores", c.Step)
	case c.Operation != "" && !slices.Contains(event.OperationTypes(), c.Operation):
		return bad("operation %q: want one of %q", c.Operation, event.OperationTypes())
	case !slices.Contains(outcomes, c.Expect.Outcome):
		return bad("expect.outcome %q: want one of %q", c.Expect.Outcome, outcomes[1:])
	case c.Expect.RetryAfter > 0 && c.Expect.Outcome != event.OutcomeRetry:
		return bad("expect.retryAfter: is for the outcome retry only")
	case c.Expect.Event != "" && c.Expect.Outcome != event.OutcomeRetry:
		return bad("expect.event: is for the outcome retry only")
	case c.Cleanup && (c.Only || c.Takes > 0):
		return bad("cleanup: leave out only and takes: the case is for the end alone")
	case time.Duration(c.Takes) > 10*time.Minute:
		return bad("takes %s: at most 10m is allowed", time.Duration(c.Takes))
	}
	command, err := c.command()
	if err == nil {
		err = command.Validate()
	}
	if err != nil {
		return bad("%w", err)
	}
	return nil
}

// command is the part of the command that the case defines.
func (c *Case) command() (event.StepExecute, error) {
	command := event.StepExecute{
		Operation: event.Operation{
			ID: "case", Type: event.Provision, InstanceID: "case", Plan: event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"},
			Context: event.Context{
				GlobalAccountID: "e449f875-b5b2-4485-b7c0-98725c0571bf", SubaccountID: "a45be5d8-eddc-4001-91cf-48cc644d571f",
				UserID: "user@example.com", PlatformRegion: "cf-eu10", Platform: "cloudfoundry",
			},
			Runtime: event.Runtime{
				Name: "checked", ShootName: "c-checked", ShootDomain: "c-checked.kyma.example.com", Provider: "azure", Region: "westeurope",
			},
		},
		Stage: "create_runtime", Step: c.Step, Cursor: 1, Dispatch: 1, StageAttempt: 1, StepAttempt: 1, ExecuteBefore: time.Now(),
	}
	o := &command.Operation
	if c.Operation != "" {
		o.Type = c.Operation
	}
	if c.Plan != "" {
		o.Plan.Name = c.Plan
	}
	for _, part := range []struct {
		name  string
		value map[string]any
		into  any
	}{
		{"context", c.Context, &o.Context},
		{"runtime", c.Runtime, &o.Runtime},
		{"update", c.Update, &o.Update},
		{"upgrade", c.Upgrade, &o.Upgrade},
		{"parameters", c.Parameters, &o.Parameters},
		{"details", c.Details, &command.Details},
	} {
		if part.value == nil {
			continue
		}
		if err := convert(part.value, part.into); err != nil {
			return command, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if c.Event != nil {
		data, err := json.Marshal(c.Event.Data)
		if err != nil {
			return command, fmt.Errorf("event.data: %w", err)
		}
		command.Event = &event.Signal{Key: c.Event.Key, Source: "/case", ID: "1", ReceivedAt: time.Now().UTC(), Data: data}
	}
	return command, nil
}

// convert converts through JSON, like messages on the bus. Unknown names are errors.
func convert(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

package process

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// The order of the fields is the order of the keys in the canonical form. A new field needs omitzero; otherwise the hash of every stored
// definition would change.
type (
	wireProcess struct {
		Operation event.OperationType `json:"operation"`
		Timeout   wireDuration        `json:"timeout"`
		Stages    []wireStage         `json:"stages"`
	}
	wireStage struct {
		Name    string     `json:"name"`
		Steps   []wireStep `json:"steps"`
		Finally bool       `json:"finally,omitzero"`
	}
	wireStep struct {
		Name      string       `json:"name"`
		Worker    string       `json:"worker"`
		When      string       `json:"when,omitempty"`
		Retry     wireRetry    `json:"retry"`
		Wait      wireWait     `json:"wait,omitzero"`
		Execution wireDuration `json:"execution"`
		OnTimeout Policy       `json:"onTimeout"`
		OnFailure Policy       `json:"onFailure"`
		NoWorker  NoWorker     `json:"noWorker,omitzero"`
		Systems   []string     `json:"systems,omitempty"`
	}
	wireRetry struct {
		Every   wireDuration `json:"every"`
		Timeout wireDuration `json:"timeout"`
		Scope   Scope        `json:"scope"`
		Factor  float64      `json:"factor,omitzero"`
		Max     wireDuration `json:"max,omitzero"`
		Jitter  float64      `json:"jitter,omitzero"`
	}
	wireWait struct {
		Every   wireDuration `json:"every"`
		Timeout wireDuration `json:"timeout"`
	}
	wireDuration time.Duration
)

// MarshalText returns the form that UnmarshalText reads.
func (d wireDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses a Go duration.
func (d *wireDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = wireDuration(v)
	return nil
}

// seal computes the canonical form and the hash.
func (p *Process) seal() error {
	w := wireProcess{Operation: p.Operation, Timeout: wireDuration(p.Timeout), Stages: make([]wireStage, len(p.Stages))}
	for i, stage := range p.Stages {
		w.Stages[i] = wireStage{Name: stage.Name, Steps: make([]wireStep, len(stage.Steps)), Finally: stage.Finally}
		for j := range stage.Steps {
			w.Stages[i].Steps[j] = wireOf(&stage.Steps[j])
		}
	}
	canonical, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode process %s: %w", p.Operation, err)
	}
	sum := sha256.Sum256(canonical)
	p.canonical, p.hash = canonical, hex.EncodeToString(sum[:])[:32]
	return nil
}

func wireOf(s *Step) wireStep {
	return wireStep{
		Name: s.Name, Worker: s.Worker, When: s.When, Execution: wireDuration(s.Execution),
		Retry: wireRetry{
			Every: wireDuration(s.Retry.Every), Timeout: wireDuration(s.Retry.Timeout), Scope: s.Retry.Scope,
			Factor: s.Retry.Factor, Max: wireDuration(s.Retry.Max), Jitter: s.Retry.Jitter,
		},
		Wait:      wireWait{Every: wireDuration(s.Wait.Every), Timeout: wireDuration(s.Wait.Timeout)},
		OnTimeout: s.OnTimeout, OnFailure: s.OnFailure, NoWorker: s.NoWorker, Systems: s.Systems,
	}
}

func (w wireStep) step() Step {
	return Step{
		Name: w.Name, Worker: w.Worker, When: w.When, Execution: time.Duration(w.Execution),
		Retry: Retry{
			Every: time.Duration(w.Retry.Every), Timeout: time.Duration(w.Retry.Timeout), Scope: w.Retry.Scope,
			Factor: w.Retry.Factor, Max: time.Duration(w.Retry.Max), Jitter: w.Retry.Jitter,
		},
		Wait:      Wait{Every: time.Duration(w.Wait.Every), Timeout: time.Duration(w.Wait.Timeout)},
		OnTimeout: w.OnTimeout, OnFailure: w.OnFailure, NoWorker: w.NoWorker, Systems: w.Systems,
	}
}

// Parse reads a definition that Canonical wrote, with keys in any order, and compiles its conditions. It does not check rules that may have
// become stricter since the definition was loaded, except that there is something to run.
func Parse(canonical []byte) (*Process, error) {
	var w wireProcess
	dec := json.NewDecoder(bytes.NewReader(canonical))
	// A setting of a newer release must not be ignored: the definition would no longer match its hash.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return nil, fmt.Errorf("parse process: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse process: more than one JSON value")
	}
	p := &Process{Operation: w.Operation, Timeout: time.Duration(w.Timeout)}
	if len(w.Stages) == 0 {
		return nil, fmt.Errorf("parse process %q: no stages", w.Operation)
	}
	var compile compiler
	for _, ws := range w.Stages {
		if len(ws.Steps) == 0 {
			return nil, fmt.Errorf("parse process %q: stage %q has no steps", w.Operation, ws.Name)
		}
		stage := Stage{Name: ws.Name, Finally: ws.Finally}
		for _, wst := range ws.Steps {
			step := wst.step()
			c, err := compile.condition(step.When)
			if err != nil {
				return nil, fmt.Errorf("parse process %q: step %q: when: %w", w.Operation, step.Name, err)
			}
			step.condition = c
			stage.Steps = append(stage.Steps, step)
		}
		p.Stages = append(p.Stages, stage)
	}
	if err := p.seal(); err != nil {
		return nil, err
	}
	return p, nil
}

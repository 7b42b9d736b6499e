package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/event"
)

// Types of events that no stream carries.
const (
	// TypeOrchestrationChanged reports the new state of an orchestration.
	TypeOrchestrationChanged = "io.kyma-project.keb.orchestration.changed.v1"
	// TypeTest is the type of a test delivery.
	TypeTest = "io.kyma-project.keb.webhook.test.v1"
)

// About describes an operation for filters and receivers.
type About struct {
	Plan, PlanID               string
	GlobalAccount, Subaccount  string
	RuntimeName, Shoot, Region string
}

// Fact is the part of a fact that the filters and the text for Slack need.
type Fact struct {
	OperationID   string              `json:"operationId"`
	OperationType event.OperationType `json:"operationType"`
	InstanceID    string              `json:"instanceId"`
	OccurredAt    time.Time           `json:"occurredAt"`
	Stage         string              `json:"stage"`
	Step          string              `json:"step"`
	Outcome       event.Outcome       `json:"outcome"`
	Error         *event.Error        `json:"error"`
	NotCompleted  []string            `json:"notCompleted"`
	Reason        string              `json:"reason"`
}

// Change is a new state of an orchestration. It is the data of TypeOrchestrationChanged.
type Change struct {
	OrchestrationID string              `json:"orchestrationId"`
	Type            event.OperationType `json:"type"`
	State           string              `json:"state"`
	Description     string              `json:"description"`
	DryRun          bool                `json:"dryRun,omitempty"`
	OccurredAt      time.Time           `json:"occurredAt"`
}

// readFact decodes a fact, and returns its kinds. It returns false for a fact without a kind.
func readFact(e *cloudevents.Event) (f Fact, kinds []Kind, ok bool) {
	if json.Unmarshal(e.Data(), &f) != nil || f.OperationID == "" {
		return f, nil, false
	}
	switch event.Type(e.Type()) {
	case event.TypeOperationStarted:
		kinds = []Kind{Started}
	case event.TypeStepFinished:
		kinds = []Kind{Step}
		if f.Error != nil && (f.Outcome == event.OutcomeRetry || f.Outcome == event.OutcomeNoAnswer) {
			kinds = []Kind{Step, Failing}
		}
	case event.TypeStageFinished:
		kinds = []Kind{Stage}
	case event.TypeOperationSucceeded:
		kinds = []Kind{Succeeded}
		if len(f.NotCompleted) > 0 {
			kinds = []Kind{Incomplete, Succeeded}
		}
	case event.TypeOperationFailed:
		kinds = []Kind{Failed}
	case event.TypeOperationCancelled:
		kinds = []Kind{Cancelled}
	default:
		return f, nil, false
	}
	return f, kinds, true
}

// key identifies what an event of a kind reports. A step that fails again with the same error reports nothing new.
func (f *Fact) key(kind Kind, eventID string) string {
	if kind == Failing {
		return fmt.Sprintf("failing/%s/%s/%s/%s/%s", f.OperationID, f.Stage, f.Step, f.Error.Component, f.Error.Reason)
	}
	return eventID
}

// messageID returns the identifier of a message to a webhook. It is the same for every attempt.
func messageID(webhookID, key string) string {
	sum := sha256.Sum256([]byte(webhookID + "\n" + key))
	return "msg_" + hex.EncodeToString(sum[:16])
}

// outgoing returns the event that receivers get: the fact without the saved data of the operation, and what it is about as extensions.
func outgoing(in *cloudevents.Event, f *Fact, kind Kind, about *About, link string) (cloudevents.Event, error) {
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(in.ID())
	e.SetSource(in.Source())
	e.SetType(in.Type())
	e.SetSubject(f.OperationID)
	e.SetTime(in.Time())
	var data map[string]json.RawMessage
	if err := json.Unmarshal(in.Data(), &data); err != nil {
		return e, fmt.Errorf("read the fact: %w", err)
	}
	delete(data, "details")
	if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write the event: %w", err)
	}
	for name, value := range map[string]string{
		"kind": string(kind), "operationtype": string(f.OperationType), "instanceid": f.InstanceID, "plan": about.Plan,
		"globalaccount": about.GlobalAccount, "subaccount": about.Subaccount, "runtimename": about.RuntimeName, "shootname": about.Shoot,
		"region": about.Region, "link": link,
	} {
		if value != "" {
			e.SetExtension(name, value)
		}
	}
	return e, e.Validate()
}

// changed returns the event of a change of an orchestration.
func changed(c *Change, link string) (cloudevents.Event, error) {
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(fmt.Sprintf("%s/%s/%d", c.OrchestrationID, c.State, c.OccurredAt.UnixMicro()))
	e.SetSource(event.SourceOrchestrator)
	e.SetType(TypeOrchestrationChanged)
	e.SetSubject(c.OrchestrationID)
	e.SetTime(c.OccurredAt)
	e.SetExtension("kind", string(Orchestration))
	e.SetExtension("operationtype", string(c.Type))
	if link != "" {
		e.SetExtension("link", link)
	}
	if err := e.SetData(cloudevents.ApplicationJSON, c); err != nil {
		return e, fmt.Errorf("write the event: %w", err)
	}
	return e, e.Validate()
}

// trial returns the event of a test delivery.
func trial(id string, w *Webhook, by string, now time.Time) (cloudevents.Event, error) {
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(id)
	e.SetSource(event.SourceOrchestrator)
	e.SetType(TypeTest)
	e.SetSubject(w.ID)
	e.SetTime(now)
	e.SetExtension("kind", string(Test))
	data := map[string]string{"webhook": w.Name, "requestedBy": by}
	if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write the event: %w", err)
	}
	return e, e.Validate()
}

package document

import (
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// Documents returns the generated documents.
func Documents() []*Document { return []*Document{operatorAPI(), brokerAPI(), osbAPI()} }

func operatorAPI() *Document {
	return &Document{
		File: "openapi.yaml", Folders: []string{"api/operator", "event"},
		Types: []any{
			operator.Error{},
			operator.OperationList{},
			operator.OperationDetail{},
			operator.OperationChange{},
			operator.HistoryLines{},
			operator.HistoryPage{},
			operator.Try{},
			operator.LiveWorkers{},
			operator.Resync{},
			operator.Overview{},
			operator.List[operator.Stuck]{},
			operator.Throughput{},
			operator.List[operator.Worker]{},
			operator.Found{},
			operator.Instance{},
			operator.MaintenanceWindow{},
			operator.List[operator.StepFigures]{},
			operator.ActionRequest{},
			operator.RetryPreview{},
			operator.OrchestrationID{},
			operator.List[operator.Orchestration]{},
			operator.List[operator.Member]{},
			operator.RetryAnswer{},
			operator.Event{},
			operator.Me{},
			operator.Replay{},
			operator.ReplayAnswer{},
			operator.HoldRequest{},
			operator.RampRequest{},
			operator.List[operator.Hold]{},
			operator.List[operator.Action]{},
			operator.EventAnswer{},
			operator.Limits{},
			operator.LimitsRequest{},
			operator.LimitsAnswer{},
			operator.Overlays{},
			operator.OverlayRequest{},
			operator.OverlayRemoval{},
			operator.OverlayRollback{},
			operator.OverlayAnswer{},
			operator.List[operator.OverlayVersion]{},
			operator.BatchRequest{},
			operator.BatchPreview{},
			operator.List[operator.Batch]{},
			operator.List[operator.BatchResult]{},
			operator.Errors{},
			operator.DeadLetterList{},
			operator.DeadLetterDetail{},
			operator.WebhookRequest{},
			operator.List[operator.Webhook]{},
			operator.List[operator.WebhookDelivery]{},
		},
		Enums: map[reflect.Type][]string{
			reflect.TypeFor[event.OperationType]():         texts(event.OperationTypes()),
			reflect.TypeFor[event.OperationState]():        texts(event.OperationStates()),
			reflect.TypeFor[event.Purpose]():               texts(event.Purposes()),
			reflect.TypeFor[operator.WaitingReason]():      texts(operator.WaitingReasons()),
			reflect.TypeFor[operator.OrchestrationState](): texts(operator.OrchestrationStates()),
			reflect.TypeFor[operator.MemberState]():        texts(operator.MemberStates()),
			reflect.TypeFor[operator.PauseReason]():        texts(operator.PauseReasons()),
			reflect.TypeFor[operator.WebhookKind]():        texts(operator.WebhookKinds()),
		},
		Adjust: adjustOperatorAPI,
	}
}

func adjustOperatorAPI(all map[string]*jsonschema.Schema) error {
	all["Upgrade"].Required = []string{"targets"} // the others have defaults
	all["Strategy"].Required, all["Parallel"].Required = nil, nil
	set, err := property(all, "OperationChange", "set")
	if err != nil {
		return err
	}
	set.AdditionalProperties = nil // any value, not only objects
	details, err := property(all, "OperationDetail", "details")
	if err != nil {
		return err
	}
	stats, err := property(all, "Orchestration", "operationStats")
	if err != nil {
		return err
	}
	failures, err := property(all, "Strategy", "maxFailures")
	if err != nil {
		return err
	}
	failures.Type = ""
	failures.OneOf = []*jsonschema.Schema{{Type: "string", Pattern: "^[0-9]+%?$"}, {Type: "integer", Minimum: "0"}}
	waiting, err := property(all, "Overview", "waiting")
	if err != nil {
		return err
	}
	details.AdditionalProperties = &jsonschema.Schema{Type: "object"}
	stats.PropertyNames = ref("MemberState")
	waiting.PropertyNames, waiting.Required = ref("WaitingReason"), texts(operator.WaitingReasons())
	return nil
}

func brokerAPI() *Document {
	return &Document{
		File: "broker.yaml", Folders: []string{"api/broker", "event"},
		Types: []any{
			broker.RuntimeList{},
			broker.Info{},
			broker.InfoFailure{},
			broker.Retriggered{},
			broker.Expired{},
			broker.OSBFailure{},
			broker.Failure{},
			broker.KubeconfigFailure{},
		},
		Enums: map[reflect.Type][]string{
			reflect.TypeFor[event.OperationType](): texts(event.OperationTypes()),
			reflect.TypeFor[broker.RuntimeState](): texts(broker.RuntimeStates()),
		},
	}
}

func osbAPI() *Document {
	return &Document{
		File: "osb.yaml", Folders: []string{"osb", "osb/osbclient"},
		Types: []any{
			osb.Catalog{},
			osb.Instance{},
			osb.LastOperation{},
			osb.InstanceAnswer{},
			osb.OperationAnswer{},
			osb.BindingAnswer{},
			osb.ErrorAnswer{},
			osbclient.Provisioning{},
			osbclient.Change{},
			osbclient.Bind{},
		},
		Enums: map[reflect.Type][]string{
			reflect.TypeFor[osb.State](): texts([]osb.State{osb.StateInProgress, osb.StateSucceeded, osb.StateFailed}),
		},
		Adjust: func(all map[string]*jsonschema.Schema) error {
			for _, request := range []string{"Provisioning", "Change", "Bind", "MaintenanceInfo"} {
				all[request].AdditionalProperties = nil // the broker ignores unknown members
			}
			mounts, err := property(all, "BindingAnswer", "volume_mounts")
			if err != nil {
				return err
			}
			mounts.Type = "array"
			return nil
		},
	}
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func ref(name string) *jsonschema.Schema { return &jsonschema.Schema{Ref: schemas + name} }

// property returns a field of a schema.
func property(all map[string]*jsonschema.Schema, schema, field string) (*jsonschema.Schema, error) {
	if s, ok := all[schema]; ok {
		if p, ok := s.Properties.Get(field); ok {
			return p, nil
		}
	}
	return nil, fmt.Errorf("schema %s has no field %s", schema, field)
}

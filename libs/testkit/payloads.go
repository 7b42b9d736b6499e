package testkit

import (
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Payloads returns a complete payload for each type of event.
func Payloads() map[event.Type]any {
	const operationID, instanceID = "6f7d1f7e-0000-4000-8000-000000000001", "6f7d1f7e-0000-4000-8000-000000000002"
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	operation := event.Operation{
		ID: operationID, Type: event.Provision, InstanceID: instanceID,
		Plan:    event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"},
		Context: event.Context{GlobalAccountID: "ga", SubaccountID: "sa", UserID: "u", PlatformRegion: "cf-eu10", Platform: "cloudfoundry", SubscriptionGlobalAccountID: "ga-0"},
		Runtime: event.Runtime{
			Name: "my runtime", ShootName: "c-1234567", ShootDomain: "c-1234567.example.com",
			Provider: "azure", Region: "westeurope",
		},
		Parameters: json.RawMessage(`{"name":"my runtime"}`), Credentials: []string{event.CredentialsServiceManager},
		Temporary: true, UserAgent: "accountcleanup-job",
		Update: &event.Changes{
			Parameters: json.RawMessage(`{"machineType":"m5.xlarge"}`), Credentials: []string{event.CredentialsServiceManager},
			LicenseType: true, Plan: true,
		},
		Upgrade: &event.Upgrade{
			OrchestrationID: operationID, KymaVersion: "2.4.0", KubernetesVersion: "1.30.1", MachineImage: "gardenlinux",
			MachineImageVersion: "1.2.3", DryRun: true, Notification: true, MaintenanceWindowBegin: &now, MaintenanceWindowEnd: &now,
		},
	}
	result := event.Result{
		OperationID: operationID, Cursor: 7, Stage: "create_runtime", Step: "EDP_Registration",
		Worker: event.Worker{Name: "edp", Version: "1.2.3"}, Message: "done", Details: json.RawMessage(`{"id":"1"}`),
		StageMemory: true, StartedAt: now, FinishedAt: now.Add(time.Second),
	}
	problem := event.Error{Component: "edp", Reason: "err_http_status_code", Message: "500"}
	fact := event.Fact{OperationID: operationID, OperationType: event.Provision, InstanceID: instanceID, Cursor: 7, OccurredAt: now}
	position := event.Position{Stage: "create_runtime", Step: "EDP_Registration", StageAttempt: 1, StepAttempt: 2}
	retryAt := now.Add(time.Minute)
	return map[event.Type]any{
		event.TypeOperationRequested: event.OperationRequested{Operation: operation, RequestedAt: now},
		event.TypeStepExecute: event.StepExecute{
			Operation: operation, Details: json.RawMessage(`{"avs":{"id":1}}`), Stage: "create_runtime", Step: "EDP_Registration",
			Cursor: 7, Dispatch: 1, StageAttempt: 1, StepAttempt: 2, FirstTriedAt: now, ExecuteBefore: now.Add(time.Minute), StageMemory: true,
			Event: &event.Signal{Key: "approval.17", Source: "/approvals", ID: "42", ReceivedAt: now, Data: json.RawMessage(`{"approved":true}`)},
		},
		event.TypeStepSucceeded:    event.StepSucceeded{Result: result},
		event.TypeStepRetry:        event.StepRetry{Result: result, RetryAfter: 1.5, Error: &problem, Event: &event.AwaitedEvent{Key: "approval.17"}},
		event.TypeStepFailed:       event.StepFailed{Result: result, Error: problem},
		event.TypeStepSkipped:      event.StepSkipped{Result: result, NotCompleted: true, Error: &problem},
		event.TypeStageLost:        event.StageLost{Result: result},
		event.TypeOperationStarted: event.OperationStarted{Fact: fact, Next: &position, Stages: []string{"create_runtime"}},
		event.TypeStepFinished: event.StepFinished{
			Fact: fact, Position: position, Worker: result.Worker, Outcome: event.OutcomeRetry, Message: "again", Error: &problem,
			RetryAt: &retryAt, Event: &event.AwaitedEvent{Key: "approval.17"}, StartedAt: now, FinishedAt: now, Tries: 3, FirstStartedAt: &now, Next: &position,
		},
		event.TypeStageFinished:      event.StageFinished{Fact: fact, Stage: "create_runtime", StageAttempt: 1},
		event.TypeOperationSucceeded: event.OperationSucceeded{Fact: fact, NotCompleted: []string{"AVS_Tags"}, Details: json.RawMessage(`{"avs":{"id":1}}`)},
		event.TypeOperationFailed:    event.OperationFailed{Fact: fact, Stage: "create_runtime", Step: "EDP_Registration", Error: problem, Details: json.RawMessage(`{"avs":{"id":1}}`)},
		event.TypeOperationCancelled: event.OperationCancelled{Fact: fact, Reason: "preempted by deprovisioning", Details: json.RawMessage(`{"avs":{"id":1}}`)},
	}
}

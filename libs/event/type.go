package event

import "strings"

// Type is the CloudEvents "type" attribute of an event of this system.
type Type string

// The CloudEvents types of the contract.
const (
	// TypeOperationRequested asks the orchestrator to run an operation. Payload: OperationRequested.
	TypeOperationRequested Type = "io.kyma-project.keb.operation.requested.v1"
	// TypeStepExecute is the command to execute one step. Payload: StepExecute.
	TypeStepExecute Type = "io.kyma-project.keb.step.execute.v1"

	// TypeStepSucceeded is the result of a step that is done. Payload: StepSucceeded.
	TypeStepSucceeded Type = "io.kyma-project.keb.step.succeeded.v1"
	// TypeStepRetry is the result of a step that wants to be taken up again later. Payload: StepRetry.
	TypeStepRetry Type = "io.kyma-project.keb.step.retry.v1"
	// TypeStepFailed is the result of a step that cannot succeed. Payload: StepFailed.
	TypeStepFailed Type = "io.kyma-project.keb.step.failed.v1"
	// TypeStepSkipped is the result of a step that decided not to do its work. Payload: StepSkipped.
	TypeStepSkipped Type = "io.kyma-project.keb.step.skipped.v1"
	// TypeStageLost reports that the stage memory a step needs is gone. Payload: StageLost.
	TypeStageLost Type = "io.kyma-project.keb.stage.lost.v1"

	// TypeOperationStarted is the fact that an operation went in progress. Payload: OperationStarted.
	TypeOperationStarted Type = "io.kyma-project.keb.operation.started.v1"
	// TypeStepFinished is the fact that one execution of a step ended, whatever its outcome. Payload: StepFinished.
	TypeStepFinished Type = "io.kyma-project.keb.step.finished.v1"
	// TypeStageFinished is the fact that a stage is finished and will not run again. Payload: StageFinished.
	TypeStageFinished Type = "io.kyma-project.keb.stage.finished.v1"
	// TypeOperationSucceeded is the fact that an operation ended well. Payload: OperationSucceeded.
	TypeOperationSucceeded Type = "io.kyma-project.keb.operation.succeeded.v1"
	// TypeOperationFailed is the fact that an operation failed. Payload: OperationFailed.
	TypeOperationFailed Type = "io.kyma-project.keb.operation.failed.v1"
	// TypeOperationCancelled is the fact that an operation was cancelled. Payload: OperationCancelled.
	TypeOperationCancelled Type = "io.kyma-project.keb.operation.cancelled.v1"
)

const (
	typePrefix = "io.kyma-project.keb."
	typeSuffix = ".v1"
)

// kind is the type without prefix and version, with hyphens for dots, so that it is one subject token.
func (t Type) kind() string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(string(t), typePrefix), typeSuffix), ".", "-")
}

// OperationType names what an operation does to an instance, as in the seeds.
type OperationType string

// The operation types.
const (
	Provision      OperationType = "provision"
	Deprovision    OperationType = "deprovision"
	Update         OperationType = "update"
	UpgradeKyma    OperationType = "upgradeKyma"
	UpgradeCluster OperationType = "upgradeCluster"
)

// OperationTypes lists every operation type.
func OperationTypes() []OperationType {
	return []OperationType{Provision, Deprovision, Update, UpgradeKyma, UpgradeCluster}
}

// OperationStates lists the states in the order in which an operation goes through them.
func OperationStates() []OperationState {
	return []OperationState{Pending, InProgress, Succeeded, Failed, Cancelled}
}

// OperationState is where an operation stands.
type OperationState string

// The states of an operation. The last three are final.
const (
	Pending    OperationState = "pending"
	InProgress OperationState = "in progress"
	Succeeded  OperationState = "succeeded"
	Failed     OperationState = "failed"
	Cancelled  OperationState = "cancelled"
)

// Final reports whether an operation in this state will never change again by itself.
func (s OperationState) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Outcome is how one execution of a step ended, in facts and in the step history.
type Outcome string

// The outcomes of a step.
const (
	OutcomeSucceeded Outcome = "succeeded"
	// OutcomeRetry: the step is taken up again after its retry-after.
	OutcomeRetry Outcome = "retry"
	// OutcomeFailed: the step failed; the operation fails, unless the process passes over it (then OutcomeNotCompleted).
	OutcomeFailed Outcome = "failed"
	// OutcomeSkipped: the step's condition was false, the step had nothing to do, or an operator skipped it.
	OutcomeSkipped Outcome = "skipped"
	// OutcomeNotCompleted: the step failed or spent its retry budget, and the operation went on without it.
	OutcomeNotCompleted Outcome = "not completed"
	// OutcomeStageLost: the stage memory was gone, and the stage starts again.
	OutcomeStageLost Outcome = "stage lost"
)

package event

import "strings"

// Type is the CloudEvents "type" attribute of an event of this system.
type Type string

// The CloudEvents types of the contract.
const (
	// TypeOperationRequested requests an operation. Payload: OperationRequested.
	TypeOperationRequested Type = "io.kyma-project.keb.operation.requested.v1"
	// TypeStepExecute is the command to execute one step. Payload: StepExecute.
	TypeStepExecute Type = "io.kyma-project.keb.step.execute.v1"

	// TypeStepSucceeded is the result of a step that succeeded. Payload: StepSucceeded.
	TypeStepSucceeded Type = "io.kyma-project.keb.step.succeeded.v1"
	// TypeStepRetry is the result of a step that must run again later. Payload: StepRetry.
	TypeStepRetry Type = "io.kyma-project.keb.step.retry.v1"
	// TypeStepFailed is the result of a step that cannot succeed. Payload: StepFailed.
	TypeStepFailed Type = "io.kyma-project.keb.step.failed.v1"
	// TypeStepSkipped is the result of a step that had nothing to do, or was not completed. Payload: StepSkipped.
	TypeStepSkipped Type = "io.kyma-project.keb.step.skipped.v1"
	// TypeStageLost reports that the stage memory that a step needs was lost. Payload: StageLost.
	TypeStageLost Type = "io.kyma-project.keb.stage.lost.v1"

	// TypeOperationStarted is the fact that an operation started. Payload: OperationStarted.
	TypeOperationStarted Type = "io.kyma-project.keb.operation.started.v1"
	// TypeStepFinished is the fact that one execution of a step ended, whatever its outcome. Payload: StepFinished.
	TypeStepFinished Type = "io.kyma-project.keb.step.finished.v1"
	// TypeStageFinished is the fact that a stage is finished and will not run again. Payload: StageFinished.
	TypeStageFinished Type = "io.kyma-project.keb.stage.finished.v1"
	// TypeOperationSucceeded is the fact that an operation succeeded. Payload: OperationSucceeded.
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

// kind returns the type without prefix and version, with hyphens instead of dots, so that it is one subject token.
func (t Type) kind() string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(string(t), typePrefix), typeSuffix), ".", "-")
}

// OperationType is the type of an operation.
type OperationType string

// Types of operations.
const (
	Provision      OperationType = "provision"
	Deprovision    OperationType = "deprovision"
	Update         OperationType = "update"
	UpgradeKyma    OperationType = "upgradeKyma"
	UpgradeCluster OperationType = "upgradeCluster"
)

// OperationTypes returns every operation type.
func OperationTypes() []OperationType {
	return []OperationType{Provision, Deprovision, Update, UpgradeKyma, UpgradeCluster}
}

// OperationStates returns the states in the usual order.
func OperationStates() []OperationState {
	return []OperationState{Pending, InProgress, Succeeded, Failed, Cancelled}
}

// OperationState is the state of an operation.
type OperationState string

// States of an operation. The last three are final.
const (
	Pending    OperationState = "pending"
	InProgress OperationState = "in progress"
	Succeeded  OperationState = "succeeded"
	Failed     OperationState = "failed"
	Cancelled  OperationState = "cancelled"
)

// Final reports whether the operation has ended. Only an operator's retry can change a final state.
func (s OperationState) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Outcome is the outcome of one execution of a step, in facts and in the step history.
type Outcome string

// Outcomes of a step.
const (
	OutcomeSucceeded Outcome = "succeeded"
	// OutcomeRetry means that the step runs again after its retry-after time.
	OutcomeRetry Outcome = "retry"
	// OutcomeFailed means that the step failed. The operation fails, unless the process continues without the step (OutcomeNotCompleted).
	OutcomeFailed Outcome = "failed"
	// OutcomeSkipped means that the step's condition was false, that the step had nothing to do, or that an operator skipped it.
	OutcomeSkipped Outcome = "skipped"
	// OutcomeNotCompleted means that the step failed or exhausted its retry budget, and the operation continued without it.
	OutcomeNotCompleted Outcome = "not completed"
	// OutcomeStageLost means that the stage memory was lost, and the stage starts again.
	OutcomeStageLost Outcome = "stage lost"
	// OutcomeNoAnswer means that the execution limit passed without a result of a live worker. The command is sent again.
	OutcomeNoAnswer Outcome = "no answer"
)

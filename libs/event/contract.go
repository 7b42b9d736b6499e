package event

// Direction is the sender and the receiver of an event.
type Direction string

// Directions of events.
const (
	BrokerToOrchestrator Direction = "broker to orchestrator"
	OrchestratorToWorker Direction = "orchestrator to worker"
	WorkerToOrchestrator Direction = "worker to orchestrator"
	OrchestratorToAll    Direction = "orchestrator to anyone"
)

// Entry describes one event type of the contract.
type Entry struct {
	Type Type
	// Name is the name of the payload struct.
	Name string
	// Payload is the zero value of the payload struct.
	Payload any
	Stream  Stream
	// Subject is the subject with "{parameter}" for each variable token, for example "keb.command.{worker}.{step}".
	Subject   string
	Direction Direction
	// Summary is one sentence.
	Summary string
}

const (
	subjectRequest = "keb.request.{operationType}"
	subjectCommand = "keb.command.{worker}.{step}"
	subjectResult  = "keb.result.{worker}.{step}"
	subjectFact    = "keb.fact.{operationType}."
)

// Contract returns every event type, in the order in which an operation uses them.
func Contract() []Entry {
	return []Entry{
		{
			TypeOperationRequested, "OperationRequested",
			OperationRequested{},
			StreamRequests, subjectRequest,
			BrokerToOrchestrator, "Requests an operation.",
		},
		{
			TypeStepExecute, "StepExecute",
			StepExecute{},
			StreamCommands, subjectCommand, OrchestratorToWorker,
			"Commands a worker to execute one step of an operation.",
		},
		result(TypeStepSucceeded, "StepSucceeded", StepSucceeded{}, "Reports that a step succeeded."),
		result(TypeStepRetry, "StepRetry", StepRetry{}, "Reports that a step must run again later."),
		result(TypeStepFailed, "StepFailed", StepFailed{}, "Reports that a step cannot succeed."),
		result(TypeStepSkipped, "StepSkipped", StepSkipped{}, "Reports that a step had nothing to do, or was not completed."),
		result(TypeStageLost, "StageLost", StageLost{}, "Reports that the stage memory that a step needs was lost, so that the stage must be repeated."),
		fact(TypeOperationStarted, "OperationStarted", OperationStarted{}, "States that an operation started."),
		fact(TypeStepFinished, "StepFinished", StepFinished{}, "States that one execution of a step ended, whatever its outcome."),
		fact(TypeStageFinished, "StageFinished", StageFinished{}, "States that a stage is finished and will not run again."),
		fact(TypeOperationSucceeded, "OperationSucceeded", OperationSucceeded{}, "States that an operation succeeded."),
		fact(TypeOperationFailed, "OperationFailed", OperationFailed{}, "States that an operation failed, and why."),
		fact(TypeOperationCancelled, "OperationCancelled", OperationCancelled{}, "States that an operation was cancelled, and why."),
	}
}

func result(t Type, name string, payload any, summary string) Entry {
	return Entry{t, name, payload, StreamResults, subjectResult, WorkerToOrchestrator, summary}
}

func fact(t Type, name string, payload any, summary string) Entry {
	return Entry{t, name, payload, StreamFacts, subjectFact + t.kind(), OrchestratorToAll, summary}
}

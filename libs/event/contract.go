package event

// Direction tells who sends an event to whom.
type Direction string

// The directions.
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
	// Payload is a zero payload.
	Payload any
	Stream  Stream
	// Subject is the subject with "{parameter}" for its variable words, for example "keb.command.{worker}.{step}".
	Subject   string
	Direction Direction
	// Summary is one sentence for people.
	Summary string
}

const (
	subjectRequest = "keb.request.{operationType}"
	subjectCommand = "keb.command.{worker}.{step}"
	subjectResult  = "keb.result.{worker}.{step}"
	subjectFact    = "keb.fact.{operationType}."
)

// Contract lists every event type, in the order in which an operation meets them.
func Contract() []Entry {
	return []Entry{
		{
			TypeOperationRequested, "OperationRequested",
			OperationRequested{},
			StreamRequests, subjectRequest,
			BrokerToOrchestrator, "Asks for an operation to be run.",
		},
		{
			TypeStepExecute, "StepExecute",
			StepExecute{},
			StreamCommands, subjectCommand, OrchestratorToWorker,
			"Commands a worker to execute one step of an operation.",
		},
		result(TypeStepSucceeded, "StepSucceeded", StepSucceeded{}, "Reports that a step is done."),
		result(TypeStepRetry, "StepRetry", StepRetry{}, "Reports that a step wants to be taken up again later."),
		result(TypeStepFailed, "StepFailed", StepFailed{}, "Reports that a step cannot succeed."),
		result(TypeStepSkipped, "StepSkipped", StepSkipped{}, "Reports that a step decided not to do its work, or gave up on it."),
		result(TypeStageLost, "StageLost", StageLost{}, "Reports that the stage memory a step needs is gone, so that the stage has to be repeated."),
		fact(TypeOperationStarted, "OperationStarted", OperationStarted{}, "States that an operation went in progress."),
		fact(TypeStepFinished, "StepFinished", StepFinished{}, "States that one execution of a step ended, whatever its outcome."),
		fact(TypeStageFinished, "StageFinished", StageFinished{}, "States that a stage is finished and will not run again."),
		fact(TypeOperationSucceeded, "OperationSucceeded", OperationSucceeded{}, "States that an operation ended well."),
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

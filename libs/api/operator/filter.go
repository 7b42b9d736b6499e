package operator

import "github.com/kyma-project/keb/libs/event"

// FilterKind is the kind of the values of a field of the filter language. It determines the operators and the form of a value.
type FilterKind string

// The kinds.
const (
	// FilterText is text: =, != and :, where * stands for any characters.
	FilterText FilterKind = "text"
	// FilterName is a complete name: =, != and :.
	FilterName FilterKind = "name"
	// FilterChoice is one of Values: =, != and :.
	FilterChoice FilterKind = "choice"
	// FilterUUID is a UUID: =, != and :.
	FilterUUID FilterKind = "UUID"
	// FilterFlag is true or false: =, != and :.
	FilterFlag FilterKind = "flag"
	// FilterNumber is a whole number: =, != and comparisons.
	FilterNumber FilterKind = "number"
	// FilterDuration is a duration such as 20m: comparisons.
	FilterDuration FilterKind = "duration"
	// FilterTime is a time, or a duration before now: comparisons and :*.
	FilterTime FilterKind = "time"
)

// FilterField is a field of the filter language of operations, https://google.aip.dev/160.
type FilterField struct {
	Name string
	Kind FilterKind
	// Values are the values of a FilterChoice.
	Values []string
	// Meaning describes the field in a few words.
	Meaning string
}

// FilterFields returns the fields of the filter language of operations, sorted by name.
func FilterFields() []FilterField {
	return []FilterField{
		{Name: "attempts", Kind: FilterNumber, Meaning: "attempts of the current step, or of its stage if these are more"},
		{Name: "created", Kind: FilterTime, Meaning: "time of the request"},
		{Name: "duration", Kind: FilterDuration, Meaning: "time from the start until the end, or until now"},
		{Name: "error", Kind: FilterName, Meaning: "key of a group of errors, or none"},
		{Name: "error.component", Kind: FilterText, Meaning: "system that failed"},
		{Name: "error.message", Kind: FilterText, Meaning: "text of the error"},
		{Name: "error.reason", Kind: FilterText, Meaning: "code of the error"},
		{Name: "finished", Kind: FilterTime, Meaning: "time of the end"},
		{Name: "global_account", Kind: FilterText, Meaning: "global account"},
		{Name: "held", Kind: FilterFlag, Meaning: "whether a hold keeps it from running"},
		{Name: "hold", Kind: FilterUUID, Meaning: "hold that keeps it from running"},
		{Name: "id", Kind: FilterUUID, Meaning: "operation"},
		{Name: "incomplete", Kind: FilterFlag, Meaning: "whether it succeeded without some of its steps"},
		{Name: "instance", Kind: FilterText, Meaning: "instance"},
		{Name: "limit_name", Kind: FilterName, Meaning: "limit that its command waits for"},
		{Name: "message", Kind: FilterText, Meaning: "message of the last result of a step"},
		{Name: "orchestration", Kind: FilterUUID, Meaning: "orchestration that it belongs to"},
		{Name: "plan", Kind: FilterText, Meaning: "plan"},
		{Name: "region", Kind: FilterText, Meaning: "region of the hyperscaler"},
		{Name: "runtime", Kind: FilterText, Meaning: "name of the runtime"},
		{Name: "shoot", Kind: FilterText, Meaning: "name of the shoot"},
		{Name: "stage", Kind: FilterName, Meaning: "stage where it is, or where it failed"},
		{Name: "started", Kind: FilterTime, Meaning: "time of the start"},
		{Name: "state", Kind: FilterChoice, Values: texts(FilterStates()), Meaning: "state"},
		{Name: "step", Kind: FilterName, Meaning: "step where it is, or where it failed"},
		{Name: "subaccount", Kind: FilterText, Meaning: "subaccount"},
		{Name: "system", Kind: FilterName, Meaning: "external system that this step calls"},
		{Name: "type", Kind: FilterChoice, Values: texts(event.OperationTypes()), Meaning: "type"},
		{Name: "waiting", Kind: FilterChoice, Values: texts(WaitingReasons()), Meaning: "why it waits"},
		{Name: "worker", Kind: FilterName, Meaning: "worker of this step"},
	}
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

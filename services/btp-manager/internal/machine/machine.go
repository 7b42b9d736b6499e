// Package machine is the life of a BtpOperator as a table: from which state which event leads where. It does no I/O and knows no
// clock; package controller finds out what happened and carries out what follows.
package machine

//go:generate go test -run TestThePageOfTheStatesIsThatOfTheCode . -update

import (
	"errors"
	"fmt"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// ErrNoTransition is the error for an event that the table does not know in a state.
var ErrNoTransition = errors.New("no such transition")

// Event is what was found out about a BtpOperator.
type Event string

// The events.
const (
	// Leads: it is the oldest BtpOperator.
	Leads Event = "Leads"
	// OlderExists: an older BtpOperator leads.
	OlderExists Event = "OlderExists"
	// SecretMissing: there is no Secret with credentials.
	SecretMissing Event = "SecretMissing"
	// SecretInvalid: the Secret lacks keys or values, or one of them cannot be.
	SecretInvalid Event = "SecretInvalid"
	// SecretUsable: what the Secret lacked is there.
	SecretUsable Event = "SecretUsable"
	// ChartFailed: the chart could not be rendered or applied.
	ChartFailed Event = "ChartFailed"
	// ObjectsNotReady: objects of the chart are not ready, and there is time left.
	ObjectsNotReady Event = "ObjectsNotReady"
	// ReadyTimedOut: objects of the chart are not ready, and the time is over.
	ReadyTimedOut Event = "ReadyTimedOut"
	// ObjectsReady: every object of the chart is there and ready.
	ObjectsReady Event = "ObjectsReady"
	// CredentialsMoved: the Secret names another namespace for the credentials than the operand has.
	CredentialsMoved Event = "CredentialsMoved"
	// ClusterIDChanged: the Secret holds another cluster ID than the operand has.
	ClusterIDChanged Event = "ClusterIDChanged"
	// DeletionBlocked: it is to be deleted, but service instances or bindings exist, and deletion is blocked while they do.
	DeletionBlocked Event = "DeletionBlocked"
	// DeletionStarted: it is to be deleted, and nothing blocks that.
	DeletionStarted Event = "DeletionStarted"
	// HardDeleteFailed: the API refused the hard delete.
	HardDeleteFailed Event = "HardDeleteFailed"
	// HardDeleteTimedOut: service instances or bindings are left at the deadline.
	HardDeleteTimedOut Event = "HardDeleteTimedOut"
	// RemovalFailed: finalizers could not be taken off, or what the chart made could not be removed.
	RemovalFailed Event = "RemovalFailed"
)

// Events lists every event.
func Events() []Event {
	return []Event{
		Leads, OlderExists, SecretMissing, SecretInvalid, SecretUsable, ChartFailed, ObjectsNotReady, ReadyTimedOut, ObjectsReady,
		CredentialsMoved, ClusterIDChanged, DeletionBlocked, DeletionStarted, HardDeleteFailed, HardDeleteTimedOut, RemovalFailed,
	}
}

// At is where a BtpOperator is. The zero value is that of a new one.
type At struct {
	State  v1alpha1.State
	Reason v1alpha1.Reason
}

// String writes a state with its reason, or "(none)".
func (a At) String() string {
	switch {
	case a.State == "":
		return "(none)"
	case a.Reason == "":
		return string(a.State)
	}
	return string(a.State) + "/" + string(a.Reason)
}

// Row is one transition.
type Row struct {
	// From is where it applies: with a reason there only, without one in every row of that state that names none itself.
	From At
	// Event is what happened.
	Event Event
	// To is the reason that follows, and with it the state. Empty: it stays where it is.
	To v1alpha1.Reason
}

// Table lists every transition (docs/contracts/btp-manager.md#transitions). docs/btp-manager-states.md is generated from it.
func Table() []Row {
	in := func(s v1alpha1.State) At { return At{State: s} }
	with := func(r v1alpha1.Reason) At {
		m, _ := r.Meaning()
		return At{m.State, r}
	}
	fresh, processing, ready, failed := At{}, in(v1alpha1.StateProcessing), in(v1alpha1.StateReady), in(v1alpha1.StateError)
	redundant, unremoved := with(v1alpha1.ReasonOlderCRExists), with(v1alpha1.ReasonResourceRemovalFailed)
	missing, invalid := with(v1alpha1.ReasonMissingSecret), with(v1alpha1.ReasonInvalidSecret)
	blocked, hard, soft := with(v1alpha1.ReasonNotCleaned), with(v1alpha1.ReasonHardDeleting), with(v1alpha1.ReasonSoftDeleting)
	return []Row{
		{fresh, Leads, v1alpha1.ReasonInitialized},
		{fresh, OlderExists, v1alpha1.ReasonOlderCRExists},
		{processing, OlderExists, v1alpha1.ReasonOlderCRExists},
		{ready, OlderExists, v1alpha1.ReasonOlderCRExists},
		{failed, OlderExists, v1alpha1.ReasonOlderCRExists},
		{redundant, OlderExists, ""},
		{redundant, Leads, v1alpha1.ReasonProcessing},

		{processing, SecretMissing, v1alpha1.ReasonMissingSecret},
		{ready, SecretMissing, v1alpha1.ReasonMissingSecret},
		{failed, SecretMissing, v1alpha1.ReasonMissingSecret},
		{missing, SecretMissing, ""},
		{processing, SecretInvalid, v1alpha1.ReasonInvalidSecret},
		{ready, SecretInvalid, v1alpha1.ReasonInvalidSecret},
		{failed, SecretInvalid, v1alpha1.ReasonInvalidSecret},
		{invalid, SecretInvalid, ""},
		{missing, SecretUsable, v1alpha1.ReasonUpdated},
		{invalid, SecretUsable, v1alpha1.ReasonUpdated},

		{processing, ChartFailed, v1alpha1.ReasonChartInstallFailed},
		{ready, ChartFailed, v1alpha1.ReasonConsistencyCheckFailed},
		{failed, ChartFailed, ""},
		{processing, ObjectsNotReady, ""},
		{ready, ObjectsNotReady, v1alpha1.ReasonInitialized},
		{failed, ObjectsNotReady, ""},
		{processing, ReadyTimedOut, v1alpha1.ReasonChartInstallFailed},
		{failed, ReadyTimedOut, ""},
		{processing, ObjectsReady, v1alpha1.ReasonReconcileSucceeded},
		{ready, ObjectsReady, ""},
		{failed, ObjectsReady, v1alpha1.ReasonUpdated},
		{ready, CredentialsMoved, v1alpha1.ReasonCredentialsNamespaceChanged},
		{ready, ClusterIDChanged, v1alpha1.ReasonClusterIDChanged},

		{fresh, DeletionBlocked, v1alpha1.ReasonNotCleaned},
		{processing, DeletionBlocked, v1alpha1.ReasonNotCleaned},
		{ready, DeletionBlocked, v1alpha1.ReasonNotCleaned},
		{failed, DeletionBlocked, v1alpha1.ReasonNotCleaned},
		{blocked, DeletionBlocked, ""},
		{fresh, DeletionStarted, v1alpha1.ReasonHardDeleting},
		{processing, DeletionStarted, v1alpha1.ReasonHardDeleting},
		{ready, DeletionStarted, v1alpha1.ReasonHardDeleting},
		{failed, DeletionStarted, v1alpha1.ReasonHardDeleting},
		{blocked, DeletionStarted, v1alpha1.ReasonHardDeleting},
		{hard, DeletionStarted, ""},
		{hard, HardDeleteFailed, v1alpha1.ReasonSoftDeleting},
		{hard, HardDeleteTimedOut, v1alpha1.ReasonSoftDeleting},
		{hard, RemovalFailed, v1alpha1.ReasonResourceRemovalFailed},
		{soft, RemovalFailed, v1alpha1.ReasonResourceRemovalFailed},
		{unremoved, RemovalFailed, ""},
		{unremoved, HardDeleteFailed, v1alpha1.ReasonSoftDeleting},
		{unremoved, HardDeleteTimedOut, v1alpha1.ReasonSoftDeleting},
	}
}

// Next answers where an event leads. A row with a reason goes before one without. It answers ErrNoTransition for an event that
// cannot be there, which is a bug of the caller.
func Next(from At, event Event) (At, error) {
	var found *Row
	for _, row := range Table() {
		if row.Event != event || row.From.State != from.State {
			continue
		}
		if row.From.Reason == from.Reason {
			found = &row
			break
		}
		if row.From.Reason == "" {
			found = &row
		}
	}
	if found == nil {
		return At{}, fmt.Errorf("%s in %s: %w", event, from, ErrNoTransition)
	}
	if found.To == "" {
		return from, nil
	}
	m, ok := found.To.Meaning()
	if !ok {
		return At{}, fmt.Errorf("%s in %s leads to an unknown reason %s", event, from, found.To)
	}
	return At{m.State, m.Reason}, nil
}

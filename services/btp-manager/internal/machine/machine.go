// Package machine defines the states of a BtpOperator as a table of transitions. It does no I/O and has no clock; package controller
// determines the events and performs the actions.
package machine

//go:generate go test -run TestStatesPage_Generated_IsUpToDate . -update

import (
	"errors"
	"fmt"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// ErrNoTransition is the error for an event that has no transition in a state.
var ErrNoTransition = errors.New("no such transition")

// Event is an event of a BtpOperator.
type Event string

// The events.
const (
	// Leads: this is the oldest BtpOperator.
	Leads Event = "Leads"
	// OlderExists: an older BtpOperator leads.
	OlderExists Event = "OlderExists"
	// SecretMissing: there is no Secret with credentials.
	SecretMissing Event = "SecretMissing"
	// SecretInvalid: the Secret lacks keys or values, or one of them is invalid.
	SecretInvalid Event = "SecretInvalid"
	// SecretUsable: the Secret is complete now.
	SecretUsable Event = "SecretUsable"
	// ChartFailed: the chart could not be rendered or applied.
	ChartFailed Event = "ChartFailed"
	// ObjectsNotReady: objects of the chart are not ready, and the deadline has not passed.
	ObjectsNotReady Event = "ObjectsNotReady"
	// ReadyTimedOut: objects of the chart are not ready, and the deadline has passed.
	ReadyTimedOut Event = "ReadyTimedOut"
	// ObjectsReady: every object of the chart exists and is ready.
	ObjectsReady Event = "ObjectsReady"
	// CredentialsMoved: the Secret contains another credentials namespace than the operand's.
	CredentialsMoved Event = "CredentialsMoved"
	// ClusterIDChanged: the Secret contains another cluster ID than the operand's.
	ClusterIDChanged Event = "ClusterIDChanged"
	// DeletionBlocked: the BtpOperator is to be deleted, but existing service instances or bindings block that, or a rejected ConfigMap may
	// block it for them.
	DeletionBlocked Event = "DeletionBlocked"
	// DeletionStarted: the BtpOperator is to be deleted, and nothing blocks that.
	DeletionStarted Event = "DeletionStarted"
	// HardDeleteFailed: the API rejected a deletion, or the hard delete failed until its deadline.
	HardDeleteFailed Event = "HardDeleteFailed"
	// HardDeleteTimedOut: service instances or bindings exist at the deadline.
	HardDeleteTimedOut Event = "HardDeleteTimedOut"
	// RemovalFailed: finalizers or objects of the chart could not be removed.
	RemovalFailed Event = "RemovalFailed"
)

// Events lists every event.
func Events() []Event {
	return []Event{
		Leads, OlderExists, SecretMissing, SecretInvalid, SecretUsable, ChartFailed, ObjectsNotReady, ReadyTimedOut, ObjectsReady,
		CredentialsMoved, ClusterIDChanged, DeletionBlocked, DeletionStarted, HardDeleteFailed, HardDeleteTimedOut, RemovalFailed,
	}
}

// At is the position of a BtpOperator: its state and reason. The zero value is that of a new one.
type At struct {
	State  v1alpha1.State
	Reason v1alpha1.Reason
}

// String returns the state and the reason, or "(none)".
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
	// From is the position where it applies. Without a reason it applies to all positions of the state that have no row of their own.
	From At
	// Event is the event.
	Event Event
	// To is the resulting reason, which determines the state. Empty means no change.
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

// Next returns the position after an event. A row with a reason takes precedence over one without. It returns ErrNoTransition for an
// event without a row, which is a bug of the caller.
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

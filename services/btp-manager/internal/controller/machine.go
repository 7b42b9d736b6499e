package controller

import (
	"fmt"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

//go:generate go test -run TestStatesPage_Generated_IsUpToDate . -update

// event is an event of a BtpOperator.
type event string

// The events.
const (
	// leads: this is the oldest BtpOperator.
	leads event = "Leads"
	// olderExists: an older BtpOperator leads.
	olderExists event = "OlderExists"
	// secretMissing: there is no Secret with credentials.
	secretMissing event = "SecretMissing"
	// secretInvalid: the Secret lacks keys or values, or one of them is invalid.
	secretInvalid event = "SecretInvalid"
	// secretUsable: the Secret is complete now.
	secretUsable event = "SecretUsable"
	// chartFailed: the chart could not be rendered or applied.
	chartFailed event = "ChartFailed"
	// objectsNotReady: objects of the chart are not ready, and the deadline has not passed.
	objectsNotReady event = "ObjectsNotReady"
	// readyTimedOut: objects of the chart are not ready, and the deadline has passed.
	readyTimedOut event = "ReadyTimedOut"
	// objectsReady: every object of the chart exists and is ready.
	objectsReady event = "ObjectsReady"
	// credentialsMoved: the Secret contains another credentials namespace than the operand's.
	credentialsMoved event = "CredentialsMoved"
	// clusterIDChanged: the Secret contains another cluster ID than the operand's.
	clusterIDChanged event = "ClusterIDChanged"
	// deletionBlocked: the BtpOperator is to be deleted, but existing service instances or bindings block that.
	deletionBlocked event = "DeletionBlocked"
	// deletionStarted: the BtpOperator is to be deleted, and nothing blocks that.
	deletionStarted event = "DeletionStarted"
	// hardDeleteFailed: the API rejected the hard delete.
	hardDeleteFailed event = "HardDeleteFailed"
	// hardDeleteTimedOut: service instances or bindings exist at the deadline.
	hardDeleteTimedOut event = "HardDeleteTimedOut"
	// removalFailed: finalizers or objects of the chart could not be removed.
	removalFailed event = "RemovalFailed"
)

// position is the state and the reason of a BtpOperator. The zero value is that of a new one.
type position struct {
	State  v1alpha1.State
	Reason v1alpha1.Reason
}

// String returns the state and the reason, or "(none)".
func (p position) String() string {
	switch {
	case p.State == "":
		return "(none)"
	case p.Reason == "":
		return string(p.State)
	}
	return string(p.State) + "/" + string(p.Reason)
}

// transition is a row of the table.
type transition struct {
	// from is the position where it applies. Without a reason it applies to all positions of the state.
	from position
	by   event
	// to is the resulting reason, which determines the state. Empty means no change.
	to v1alpha1.Reason
}

// applies reports whether the transition applies to an event in a position.
func (t transition) applies(from position, by event) bool {
	return t.by == by && t.from.State == from.State && (t.from.Reason == "" || t.from.Reason == from.Reason)
}

// table lists every transition (docs/contracts/btp-manager.md#transitions). docs/btp-manager-states.md is generated from it.
func table() []transition {
	in := func(s v1alpha1.State) position { return position{State: s} }
	with := func(r v1alpha1.Reason) position {
		m, _ := r.Meaning()
		return position{m.State, r}
	}
	fresh, processing, ready, failed := position{}, in(v1alpha1.StateProcessing), in(v1alpha1.StateReady), in(v1alpha1.StateError)
	redundant, unremoved := with(v1alpha1.ReasonOlderCRExists), with(v1alpha1.ReasonResourceRemovalFailed)
	missing, invalid := with(v1alpha1.ReasonMissingSecret), with(v1alpha1.ReasonInvalidSecret)
	blocked, hard, soft := with(v1alpha1.ReasonNotCleaned), with(v1alpha1.ReasonHardDeleting), with(v1alpha1.ReasonSoftDeleting)
	return []transition{
		{fresh, leads, v1alpha1.ReasonInitialized},
		{fresh, olderExists, v1alpha1.ReasonOlderCRExists},
		{processing, olderExists, v1alpha1.ReasonOlderCRExists},
		{ready, olderExists, v1alpha1.ReasonOlderCRExists},
		{failed, olderExists, v1alpha1.ReasonOlderCRExists},
		{redundant, leads, v1alpha1.ReasonProcessing},

		{processing, secretMissing, v1alpha1.ReasonMissingSecret},
		{ready, secretMissing, v1alpha1.ReasonMissingSecret},
		{failed, secretMissing, v1alpha1.ReasonMissingSecret},
		{processing, secretInvalid, v1alpha1.ReasonInvalidSecret},
		{ready, secretInvalid, v1alpha1.ReasonInvalidSecret},
		{failed, secretInvalid, v1alpha1.ReasonInvalidSecret},
		{missing, secretUsable, v1alpha1.ReasonUpdated},
		{invalid, secretUsable, v1alpha1.ReasonUpdated},

		{processing, chartFailed, v1alpha1.ReasonChartInstallFailed},
		{ready, chartFailed, v1alpha1.ReasonConsistencyCheckFailed},
		{failed, chartFailed, ""},
		{processing, objectsNotReady, ""},
		{ready, objectsNotReady, v1alpha1.ReasonInitialized},
		{failed, objectsNotReady, ""},
		{processing, readyTimedOut, v1alpha1.ReasonChartInstallFailed},
		{failed, readyTimedOut, ""},
		{processing, objectsReady, v1alpha1.ReasonReconcileSucceeded},
		{ready, objectsReady, ""},
		{failed, objectsReady, v1alpha1.ReasonUpdated},
		{ready, credentialsMoved, v1alpha1.ReasonCredentialsNamespaceChanged},
		{ready, clusterIDChanged, v1alpha1.ReasonClusterIDChanged},

		{fresh, deletionBlocked, v1alpha1.ReasonNotCleaned},
		{processing, deletionBlocked, v1alpha1.ReasonNotCleaned},
		{ready, deletionBlocked, v1alpha1.ReasonNotCleaned},
		{failed, deletionBlocked, v1alpha1.ReasonNotCleaned},
		{blocked, deletionBlocked, ""},
		{fresh, deletionStarted, v1alpha1.ReasonHardDeleting},
		{processing, deletionStarted, v1alpha1.ReasonHardDeleting},
		{ready, deletionStarted, v1alpha1.ReasonHardDeleting},
		{failed, deletionStarted, v1alpha1.ReasonHardDeleting},
		{blocked, deletionStarted, v1alpha1.ReasonHardDeleting},
		{hard, deletionStarted, ""},
		{hard, hardDeleteFailed, v1alpha1.ReasonSoftDeleting},
		{hard, hardDeleteTimedOut, v1alpha1.ReasonSoftDeleting},
		{hard, removalFailed, v1alpha1.ReasonResourceRemovalFailed},
		{soft, removalFailed, v1alpha1.ReasonResourceRemovalFailed},
		{unremoved, removalFailed, ""},
		{unremoved, hardDeleteFailed, v1alpha1.ReasonSoftDeleting},
		{unremoved, hardDeleteTimedOut, v1alpha1.ReasonSoftDeleting},
	}
}

// next returns the position after an event. An event without a transition is a bug of the caller.
func next(from position, by event) (position, error) {
	for _, t := range table() {
		if !t.applies(from, by) {
			continue
		}
		if t.to == "" {
			return from, nil
		}
		m, _ := t.to.Meaning()
		return position{m.State, m.Reason}, nil
	}
	return position{}, fmt.Errorf("%s in %s: no such transition", by, from)
}

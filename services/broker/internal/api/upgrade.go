package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

const (
	// maxUpgrades limits the upgrades in one request (event.UpgradeRequest).
	maxUpgrades = 100
	// maxVersion limits versions and similar texts, in bytes.
	maxVersion = 256
)

var (
	errLater = errors.New("upgrades cannot be recorded at present, ask again")
	// errExpired is temporary, too: the next request has another time.
	errExpired = errors.New("the request for upgrades has expired: the broker was slow, or its clock is ahead")
	errBroken  = errors.New("upgrades could not be recorded: see the broker's log")
)

// AnswerUpgrade answers event.AskUpgrade: it records the possible upgrades of an orchestration in one transaction, and returns the reasons
// against the others. A repeated request for the same operations records nothing, and gets the same answer. If only a confirmation is
// requested, it records nothing, and the locks make it wait for an earlier request that is being recorded. Upgrades go through the
// broker, because it serializes all operations of an instance, and because the read model and the credentials refer to its operations.
func (b *Broker) AnswerUpgrade(ctx context.Context, question []byte) (any, error) {
	var q event.UpgradeRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, fmt.Errorf("the question must be a JSON object with upgrades: %w", err)
	}
	if err := checkUpgrades(q.Upgrades); err != nil {
		return nil, err
	}
	var (
		answer   event.UpgradeAnswer
		recorded []store.Request
	)
	err := b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		answer, recorded, err = b.recordUpgrades(ctx, tx, q)
		return err
	})
	switch {
	case errors.Is(err, store.ErrUnavailable):
		b.deps.Log.Warn("upgrades not recorded", "err", err)
		return nil, errLater
	case errors.Is(err, errExpired):
		b.deps.Log.Warn("upgrades not recorded", "err", err)
		return nil, errExpired
	case err != nil:
		b.deps.Log.Error("upgrades not recorded", "err", err)
		return nil, errBroken
	}
	for _, request := range recorded {
		o := request.Operation
		b.deps.Notify(o.InstanceID)
		b.deps.Log.Info("audit", "action", o.Type, "instance_id", o.InstanceID, "operation_id", o.ID,
			"orchestration_id", o.Upgrade.OrchestrationID)
	}
	return answer, nil
}

func (b *Broker) recordUpgrades(ctx context.Context, tx *store.Tx, q event.UpgradeRequest) (event.UpgradeAnswer, []store.Request, error) {
	orders := q.Upgrades
	ids, instances := make([]string, len(orders)), make([]string, len(orders))
	for i, o := range orders {
		ids[i], instances[i] = o.OperationID, o.InstanceID
	}
	answer := event.UpgradeAnswer{Upgrades: make([]event.UpgradeRecorded, len(orders))}
	locked, err := tx.LockAll(ctx, instances)
	if err != nil {
		return answer, nil, err
	}
	// The locks may have taken long. What is not recorded in time was requested from another broker, or given up.
	if !q.ConfirmOnly && !q.ExpiresAt.IsZero() && b.deps.Now().After(q.ExpiresAt) {
		return answer, nil, errExpired
	}
	// The locks are held, so a concurrent identical request waits and then finds these records.
	existing, err := tx.Recorded(ctx, ids)
	if err != nil {
		return answer, nil, err
	}
	var requests []store.Request
	for i, o := range orders {
		answer.Upgrades[i].OperationID = o.OperationID
		if old, ok := existing[o.OperationID]; ok {
			if old.InstanceID != o.InstanceID || old.Type != string(o.Type) {
				answer.Upgrades[i].Refused = "another operation has this id"
			}
			continue
		}
		if q.ConfirmOnly {
			answer.Upgrades[i].Refused = "the upgrade is not recorded"
			continue
		}
		found := locked[o.InstanceID]
		if reason := refusal(found); reason != "" {
			answer.Upgrades[i].Refused = reason
			continue
		}
		operation := found.Then.Event(o.OperationID, o.Type, found.Credentials)
		operation.Upgrade = &o.Upgrade
		requests = append(requests, store.Request{
			Operation: operation, At: b.deps.Now(), Extensions: tracing.Extension(ctx),
		})
	}
	return answer, requests, tx.InsertUpgrades(ctx, requests)
}

// refusal returns why an instance cannot be upgraded, or "" if it can.
func refusal(u *store.Upgradable) string {
	switch {
	case u == nil:
		return "there is no such instance"
	case !u.Instance.DeletedAt.IsZero():
		return "the instance is deleted"
	}
	switch u.State {
	case store.RuntimeSucceeded, store.RuntimeError, store.RuntimeUpdating, store.RuntimeUpgrading:
		return ""
	case store.RuntimeSuspended:
		return "the instance is suspended: it has no runtime"
	case store.RuntimeDeprovisioning:
		return "the instance is being deprovisioned"
	case store.RuntimeProvisioning:
		return "the instance is still being provisioned"
	case store.RuntimeDeprovisioned, store.RuntimeIncomplete:
		return "the instance is deleted"
	}
	return "the last provisioning or deprovisioning of the instance failed"
}

// checkUpgrades validates a request. The error contains the name of the member.
func checkUpgrades(orders []event.UpgradeOrder) error {
	if len(orders) == 0 {
		return errors.New("upgrades: there are none")
	}
	if len(orders) > maxUpgrades {
		return fmt.Errorf("upgrades: %d are given, at most %d are allowed", len(orders), maxUpgrades)
	}
	seen := make(map[string]bool, len(orders))
	for i := range orders {
		o := &orders[i]
		id, err := canonical(o.OperationID)
		if err != nil {
			return fmt.Errorf("upgrades[%d].operationId: %w", i, err)
		}
		// Different spellings of one id are the same operation.
		o.OperationID = id
		if seen[id] {
			return fmt.Errorf("upgrades[%d].operationId: %s is given twice", i, id)
		}
		seen[id] = true
		if err := checkUpgrade(o); err != nil {
			return fmt.Errorf("upgrades[%d].%w", i, err)
		}
	}
	return nil
}

func checkUpgrade(o *event.UpgradeOrder) error {
	types := []event.OperationType{event.UpgradeKyma, event.UpgradeCluster}
	if !slices.Contains(types, o.Type) {
		return fmt.Errorf("type %.100q: allowed are %s and %s", o.Type, types[0], types[1])
	}
	if err := checkText("instanceId", o.InstanceID, osb.MaxIDLength); err != nil {
		return err
	}
	if o.InstanceID == "" {
		return errors.New("instanceId: must not be empty")
	}
	u := &o.Upgrade
	id, err := canonical(u.OrchestrationID)
	if err != nil {
		return fmt.Errorf("upgrade.orchestrationId: %w", err)
	}
	u.OrchestrationID = id
	for _, m := range []struct{ name, value string }{
		{"kymaVersion", u.KymaVersion},
		{"kubernetesVersion", u.KubernetesVersion},
		{"machineImage", u.MachineImage},
		{"machineImageVersion", u.MachineImageVersion},
	} {
		if err := checkText("upgrade."+m.name, m.value, maxVersion); err != nil {
			return err
		}
	}
	begin, end := u.MaintenanceWindowBegin, u.MaintenanceWindowEnd
	if (begin == nil) != (end == nil) {
		return errors.New("upgrade.maintenanceWindowBegin and maintenanceWindowEnd: give both or neither")
	}
	if begin != nil && !end.After(*begin) {
		return errors.New("upgrade.maintenanceWindowEnd: must be after maintenanceWindowBegin")
	}
	return nil
}

// canonical returns a UUID in its stored form.
func canonical(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || len(id) != len(parsed.String()) {
		return "", fmt.Errorf("%.100q is not a UUID", id)
	}
	return parsed.String(), nil
}

func checkText(name, v string, most int) error {
	if len(v) > most {
		return fmt.Errorf("%s: must be at most %d bytes", name, most)
	}
	if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("%s: must be UTF-8 without control characters", name)
	}
	return nil
}

package runtimes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// stateOf converts the state of an operation to this contract (docs/contracts/processes.md#states).
func stateOf(s event.OperationState) string {
	if s == event.Cancelled {
		return "canceled"
	}
	return string(s)
}

func operationOf(o *store.RuntimeOperation) broker.Operation {
	return broker.Operation{
		State: stateOf(o.State), Type: o.Type, Description: o.Detail(), CreatedAt: o.CreatedAt.UTC(),
		UpdatedAt: o.UpdatedAt.UTC(), OperationID: o.ID, OrchestrationID: o.OrchestrationID, NotCompleted: o.NotCompleted,
		RuntimeVersion: o.RuntimeVersion, DryRun: o.DryRun,
	}
}

func view(r *store.Runtime, withKyma, withCluster bool) (broker.Runtime, error) {
	v := broker.Runtime{
		InstanceID: r.InstanceID, RuntimeID: r.RuntimeID, GlobalAccountID: r.GlobalAccountID, SubscriptionAccountID: r.SubscriptionAccountID,
		SubAccountID: r.SubaccountID, Region: r.Region, PlatformRegion: r.PlatformRegion, ShootName: r.ShootName,
		ServiceID: r.ServiceID, ServicePlanID: r.Plan.ID, ServicePlanName: r.Plan.Name, Provider: r.Provider, UserID: r.UserID,
		Status: status(r),
	}
	if r.ServiceID == catalog.ServiceID {
		v.ServiceName = catalog.ServiceName
	}
	k, err := readKnown(r)
	if err != nil {
		return v, err
	}
	v.InternalAVS, v.KymaVersion = k.details.AVS.InternalID, k.kymaVersion()
	if withKyma {
		v.KymaConfig = k.kyma()
	}
	if withCluster {
		v.ClusterConfig = k.cluster()
	}
	return v, nil
}

func status(r *store.Runtime) broker.Status {
	s := broker.Status{
		CreatedAt: r.CreatedAt.UTC(), ModifiedAt: r.CreatedAt.UTC(), ExpiredAt: utc(r.ExpiredAt), DeletedAt: utc(r.DeletedAt), State: broker.RuntimeState(r.State),
	}
	for i := range r.Operations {
		o := &r.Operations[i]
		if at := o.UpdatedAt.UTC(); at.After(s.ModifiedAt) {
			s.ModifiedAt = at
		}
		item := operationOf(o)
		var several **broker.Operations
		switch o.Kind {
		case store.OperationKind(event.Provision):
			s.Provisioning = &item
			continue
		case store.OperationKind(event.Deprovision):
			s.Deprovisioning = &item
			continue
		case store.OperationKind(event.UpgradeKyma):
			several = &s.UpgradingKyma
		case store.OperationKind(event.UpgradeCluster):
			several = &s.UpgradingCluster
		case store.OperationKind(event.Update):
			several = &s.Update
		case store.KindSuspension:
			several = &s.Suspension
		case store.KindUnsuspension:
			several = &s.Unsuspension
		default:
			continue
		}
		if *several == nil {
			*several = &broker.Operations{TotalCount: o.Total}
		}
		(*several).Data = append((*several).Data, item)
		(*several).Count++
	}
	return s
}

// utc converts a time to UTC and keeps the zero time.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// known is the known configuration of a runtime: the order with all defaults, and the data that the workers saved.
type known struct {
	runtime    *store.Runtime
	parameters parameters
	details    details
}

// parameters are the effective parameters that describe a runtime (docs/contracts/plans.md#parameters).
type parameters struct {
	MachineType    string          `json:"machineType"`
	VolumeSizeGB   int             `json:"volumeSizeGb"`
	AutoScalerMin  int             `json:"autoScalerMin"`
	AutoScalerMax  int             `json:"autoScalerMax"`
	MaxSurge       *int            `json:"maxSurge"`
	MaxUnavailable *int            `json:"maxUnavailable"`
	Zones          []string        `json:"zones"`
	Purpose        string          `json:"purpose"`
	EUAccess       bool            `json:"euAccess"`
	OIDC           json.RawMessage `json:"oidc"`
	Administrators []string        `json:"administrators"`
	KymaVersion    string          `json:"kymaVersion"`
	Components     []string        `json:"components"`
}

// details are the shown members of the saved data. An invalid member must not break the list.
type details struct {
	AVS struct {
		InternalID int64 `json:"internalId"`
	} `json:"avs"`
	Kyma struct {
		Version string `json:"version"`
	} `json:"kyma"`
	Reconciler struct {
		KymaVersion string `json:"kymaVersion"`
	} `json:"reconciler"`
	Provisioner struct {
		KubernetesVersion string `json:"kubernetesVersion"`
	} `json:"provisioner"`
	Hyperscaler struct {
		TargetSecret string `json:"targetSecret"`
	} `json:"hyperscaler"`
}

func readKnown(r *store.Runtime) (known, error) {
	k := known{runtime: r}
	if len(r.Effective) > 0 {
		err := json.Unmarshal(r.Effective, &k.parameters)
		// A member of a wrong type stays empty; the others are set.
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
			return k, fmt.Errorf("parameters of instance %s: %w", r.InstanceID, err)
		}
	}
	var members map[string]json.RawMessage
	if len(r.Details) == 0 || json.Unmarshal(r.Details, &members) != nil {
		return k, nil
	}
	for name, target := range map[string]any{
		"avs": &k.details.AVS, "kyma": &k.details.Kyma, "reconciler": &k.details.Reconciler, "provisioner": &k.details.Provisioner,
		"hyperscaler": &k.details.Hyperscaler,
	} {
		if raw := members[name]; raw != nil {
			_ = json.Unmarshal(raw, target) // an invalid member stays empty
		}
	}
	return k, nil
}

// kymaVersion returns the first known of: the version applied last, the version chosen by the workers (failed upgrades and dry runs do
// not change it), the version of the newest upgrade, the ordered version.
func (k *known) kymaVersion() string {
	if v := cmp.Or(k.details.Reconciler.KymaVersion, k.details.Kyma.Version); v != "" {
		return v
	}
	for i := range k.runtime.Operations {
		o := &k.runtime.Operations[i]
		if o.Type == event.UpgradeKyma && o.State == event.Succeeded && o.RuntimeVersion != "" {
			return o.RuntimeVersion
		}
	}
	return k.parameters.KymaVersion
}

func (k *known) kyma() *broker.KymaConfig {
	version := k.kymaVersion()
	if version == "" {
		return nil
	}
	c := &broker.KymaConfig{Version: version}
	for _, name := range k.parameters.Components {
		c.Components = append(c.Components, broker.Component{Component: name})
	}
	return c
}

// cluster returns nil for a customer's own cluster, and for a removed instance.
func (k *known) cluster() *broker.ClusterConfig {
	r, p := k.runtime, &k.parameters
	if len(r.Effective) == 0 || r.Provider == catalog.ProviderCustom {
		return nil
	}
	return &broker.ClusterConfig{
		Name: r.ShootName, Provider: r.Provider, Region: r.Region, TargetSecret: k.details.Hyperscaler.TargetSecret,
		MachineType: p.MachineType, VolumeSizeGB: p.VolumeSizeGB, AutoScalerMin: p.AutoScalerMin, AutoScalerMax: p.AutoScalerMax,
		MaxSurge: p.MaxSurge, MaxUnavailable: p.MaxUnavailable, Zones: p.Zones, Purpose: p.Purpose, LicenceType: catalog.LicenceType(r.Plan.Name),
		EUAccess: p.EUAccess, OIDC: p.OIDC, Administrators: p.Administrators,
	}
}

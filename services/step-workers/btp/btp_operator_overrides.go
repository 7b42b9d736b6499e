package btp

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// operatorOverrides hands the Service Manager credentials to the BTP operator by way of the stage memory.
type operatorOverrides struct{ *shared }

// Name implements worker.Step.
func (operatorOverrides) Name() string { return "BTPOperatorOverrides" }

// Run implements worker.Step.
func (s operatorOverrides) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	c, err := claim(ctx, op)
	if incomplete(err) {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	id, err := clusterID(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "manager.secret.clientid", Value: c.ClientID, Secret: true},
		{Key: "manager.secret.clientsecret", Value: c.ClientSecret, Secret: true},
		{Key: "manager.secret.url", Value: c.URL},
		{Key: "manager.secret.sm_url", Value: c.SMURL},
		{Key: "manager.secret.tokenurl", Value: c.URL},
		{Key: "cluster.id", Value: id},
		{Key: "manager.priorityClassName", Value: "kyma-system"},
	})
	return op, 0, op.SaveDetails(Details{ClusterID: id})
}

package gauge

import (
	"context"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

type orchestrations struct {
	deps           Deps
	active, member *scrape.Gauge
}

func newOrchestrations(deps Deps) *scrape.Collector {
	o := &orchestrations{
		deps:   deps,
		active: scrape.NewGauge("keb_orchestrations", "Orchestrations that have not ended.", "type", "state"),
		member: scrape.NewGauge("keb_orchestration_operations", "Operations of orchestrations that have not ended.", "type", "state"),
	}
	return scrape.New(config(deps, "orchestrations", age), o.read, o.active, o.member)
}

func (o *orchestrations) read(ctx context.Context, s *scrape.Sample) error {
	active, members, err := o.deps.Orchestrations.Census(ctx)
	if err != nil {
		return err
	}
	for _, t := range []event.OperationType{event.UpgradeKyma, event.UpgradeCluster} {
		for _, state := range orchestration.States() {
			if !state.Final() {
				s.Add(o.active, 0, string(t), string(state))
			}
		}
		for _, state := range orchestration.MemberStates() {
			s.Add(o.member, 0, string(t), string(state))
		}
	}
	for _, a := range active {
		s.Add(o.active, float64(a.Count), string(a.Type), string(a.State))
	}
	for _, m := range members {
		s.Add(o.member, float64(m.Count), string(m.Type), string(m.State))
	}
	return nil
}

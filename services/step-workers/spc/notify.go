package spc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Questions creates the questions of the worker.
func Questions(cfg Config, deps extclient.Deps) ([]worker.Question, error) {
	n := notifications{}
	var err error
	if cfg.URL != "" {
		n.spc, err = newClient(cfg, deps)
	}
	return []worker.Question{{Subject: event.AskNotify, Answer: n.answer}}, err
}

// notifications announces whole orchestrations to SPC; the steps announce their operations.
type notifications struct {
	// spc is nil without a URL.
	spc *client
}

// answer implements worker.Question. After an error the orchestrator asks again; SPC accepts the same event twice.
func (n notifications) answer(ctx context.Context, question []byte) (any, error) {
	var q event.NotifyRequest
	if err := json.Unmarshal(question, &q); err != nil || q.OrchestrationID == "" {
		return nil, errors.New("the question is not a JSON object with the member orchestrationId")
	}
	switch {
	case n.spc == nil:
		return event.NotifyAnswer{Skipped: "spc has no URL (KEB_SPC_URL): skipped"}, nil
	case !q.Cancelled:
		return event.NotifyAnswer{}, n.spc.send(ctx, http.MethodPost, createRoute, scheduled(q))
	}
	err := n.spc.send(ctx, http.MethodPatch, cancelRoute, maintenance{OrchestrationID: q.OrchestrationID})
	if extclient.IsStatus(err, http.StatusNotFound) {
		return event.NotifyAnswer{Skipped: "the orchestration was never announced"}, nil
	}
	return event.NotifyAnswer{}, err
}

package runtimes

import (
	"bufio"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// infoPage is the number of runtimes in memory at a time.
const infoPage = 500

// info writes all runtimes as one array, page by page. A failure after the first page aborts the connection, so that no client
// accepts a partial list.
func (a *API) info(w http.ResponseWriter, r *http.Request) {
	var (
		out     = bufio.NewWriter(w)
		after   store.RuntimePosition
		started bool
	)
	for {
		found, err := a.deps.Store.RuntimesAfter(r.Context(), after, infoPage)
		if err != nil {
			a.infoBroken(w, err, started)
			return
		}
		if !started {
			w.Header().Set("Content-Type", "application/json")
			_ = out.WriteByte('[')
		}
		for i := range found {
			raw, err := json.Marshal(info(&found[i]))
			if err != nil {
				a.infoBroken(w, err, started)
				return
			}
			if started || i > 0 {
				_ = out.WriteByte(',')
			}
			_, _ = out.Write(raw)
		}
		started = started || len(found) > 0
		if len(found) < infoPage {
			_ = out.WriteByte(']')
			_ = out.Flush() // a disconnected client is not an error
			return
		}
		// The writer keeps its first error.
		if out.Flush() != nil {
			return
		}
		last := &found[len(found)-1]
		after = store.RuntimePosition{CreatedAt: last.CreatedAt, InstanceID: last.InstanceID}
	}
}

func (a *API) infoBroken(w http.ResponseWriter, err error, started bool) {
	status, text := outcome(err)
	request := uuid.NewString()
	a.deps.Log.Error("request failed", "status", status, "request_id", request, "err", err)
	if started {
		panic(http.ErrAbortHandler)
	}
	a.write(w, status, broker.InfoFailure{Status: status, RequestID: request, Message: text.Error()})
}

func info(r *store.Runtime) broker.Info {
	s := status(r)
	v := broker.Info{
		RuntimeID: r.RuntimeID, GlobalAccountID: r.GlobalAccountID, SubaccountID: r.SubaccountID, PlatformRegion: r.PlatformRegion,
		InstanceID: r.InstanceID, ServiceID: r.ServiceID, PlanID: r.Plan.ID, PlanName: r.Plan.Name,
		Status: broker.InfoStatus{CreatedAt: s.CreatedAt, UpdatedAt: s.ModifiedAt, DeletedAt: s.DeletedAt},
	}
	if r.ServiceID == catalog.ServiceID {
		v.ServiceName = catalog.ServiceName
	}
	for i := range r.Operations {
		o := &r.Operations[i]
		item := &broker.InfoOperation{State: stateOf(o.State), Description: o.Detail()}
		switch o.Kind {
		case store.OperationKind(event.Provision):
			v.Status.Provisioning = item
		case store.OperationKind(event.Deprovision):
			v.Status.Deprovisioning = item
		}
	}
	return v
}

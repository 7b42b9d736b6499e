package edp

import (
	"errors"
	"net/http"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// withReason adds the reason of a rejection (docs/contracts/processes.md#components-and-reasons-of-errors). The cause still decides
// whether the error is temporary.
func withReason(err error) error {
	refused, ok := errors.AsType[*extclient.StatusError](err)
	if !ok || extclient.GatewayReason(refused.Status) != "" {
		return err // EDP itself did not answer
	}
	return &worker.Error{Component: component, Reason: reasonOf(refused.Status), Err: err}
}

func reasonOf(status int) string {
	switch status {
	case http.StatusConflict:
		return "err_edp_internal"
	case http.StatusNotFound:
		return "err_edp_not_found"
	case http.StatusBadRequest:
		return "err_edp_bad_request"
	case http.StatusRequestTimeout:
		return "err_edp_timeout"
	}
	return "err_edp_other"
}

package hyperscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

const (
	// maxShootNames is the maximum number of shoots in one question.
	maxShootNames = 1000
	// windowTime is the format of the times of a maintenance window (docs/contracts/gardener.md#shoots).
	windowTime = "150405-0700"
)

// windows answers questions about the maintenance windows of shoots.
type windows struct {
	kube      *kube.Client
	namespace string
}

// answer implements worker.Question. It lists all shoots once. It omits a shoot without a valid window.
func (w windows) answer(ctx context.Context, question []byte) (any, error) {
	var q event.MaintenanceWindowsRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question is not a JSON object with the member shootNames")
	}
	if len(q.ShootNames) > maxShootNames {
		return nil, fmt.Errorf("shootNames has %d names: at most %d are allowed", len(q.ShootNames), maxShootNames)
	}
	answer := event.MaintenanceWindowsAnswer{Windows: []event.MaintenanceWindow{}}
	if len(q.ShootNames) == 0 {
		return answer, nil
	}
	wanted := make(map[string]bool, len(q.ShootNames))
	for _, name := range q.ShootNames {
		wanted[name] = true
	}
	err := w.kube.Each(ctx, kube.Shoots, w.namespace, "", func(shoot unstructured.Unstructured) {
		if window, ok := windowOf(shoot); ok && wanted[window.ShootName] {
			answer.Windows = append(answer.Windows, window)
		}
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func windowOf(shoot unstructured.Unstructured) (event.MaintenanceWindow, bool) {
	times, _, err := unstructured.NestedStringMap(shoot.Object, "spec", "maintenance", "timeWindow")
	if err != nil {
		return event.MaintenanceWindow{}, false
	}
	for _, name := range []string{"begin", "end"} {
		if _, err := time.Parse(windowTime, times[name]); err != nil {
			return event.MaintenanceWindow{}, false
		}
	}
	return event.MaintenanceWindow{ShootName: shoot.GetName(), Begin: times["begin"], End: times["end"]}, true
}

package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// A new BtpOperator may be older: timestamps have a resolution of a second, and the clocks of several API servers differ. The previous leader
// must be notified, or both stay Ready until the next pass.
func TestWatch_NewBtpOperator_TriggersAllOthers(t *testing.T) {
	o := new(v1alpha1.BtpOperator)
	freed := o.DeepCopy()
	o.Finalizers = []string{v1alpha1.Finalizer}
	for _, tt := range []struct {
		name string
		got  bool
		want bool
	}{
		{"it comes", leaderChanges().Create(event.CreateEvent{Object: o}), true},
		{"it goes", leaderChanges().Delete(event.DeleteEvent{Object: o}), true},
		{"it is freed", leaderChanges().Update(event.UpdateEvent{ObjectOld: o, ObjectNew: freed}), true},
		{"its status changes", leaderChanges().Update(event.UpdateEvent{ObjectOld: o, ObjectNew: o.DeepCopy()}), false},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: told %t, want %t", tt.name, tt.got, tt.want)
		}
	}
}

// Thousands of deleted service instances must not cause as many passes.
func TestWatch_ManyEvents_CauseOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(queue.ShutDown)
		h := after(200*time.Millisecond, func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "kyma-system", Name: "btpoperator"}}}
		})
		for range 100 {
			h.Generic(t.Context(), event.GenericEvent{Object: new(v1alpha1.BtpOperator)}, queue)
		}
		<-time.After(199 * time.Millisecond)
		synctest.Wait()
		if n := queue.Len(); n != 0 {
			t.Errorf("%d passes at once", n)
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		if n := queue.Len(); n != 1 {
			t.Errorf("%d passes are due, want 1", n)
		}
	})
}

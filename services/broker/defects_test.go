package broker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// These tests cover defects of the original, by their numbers in docs/contracts/defects.md. Number 10 is
// TestUpdate_MachineTypeOnly_IsKept in update_test.go, number 14 cases G01 to G15 of the conformance suite. Other services cover the remaining defects.

// 11.
func TestUpdate_InvalidWithoutContext_Returns400(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	for _, body := range []map[string]any{
		parameters(map[string]any{"autoScalerMin": "three"}), parameters(map[string]any{"machineType": 5}),
		{"parameters": []int{1}},
		{"parameters": "x"},
		{"context": "x"},
		{"context": []int{}},
		{"context": map[string]any{"globalaccount_id": 1}},
	} {
		b.expect(fmt.Sprint(body), b.patch("i", body), http.StatusBadRequest)
	}
	for _, body := range []map[string]any{{}, {"context": nil}, {"parameters": nil}} {
		b.expect(fmt.Sprint(body), b.patch("i", body), http.StatusOK)
	}
	got := b.updated("i", parameters(map[string]any{"autoScalerMax": 9}))
	equal(t, "context", b.orch.received("i")[0].Context, got.Context)
	equal(t, "credentials", []string{event.CredentialsServiceManager}, got.Credentials)
	// A rejected order also gets a specific status, where the original always returns 400.
	european := with(order(azure), "context", map[string]any{"globalaccount_id": "g", "subaccount_id": "s", "user_id": "u"})
	b.expect("an account without EU access", b.send(http.MethodPut, "/oauth/cf-eu11/v2/service_instances/e?accepts_incomplete=true", european), http.StatusUnprocessableEntity)
}

// 13. TestOrder_SecondTrial_IsRejected in suspension_test.go covers concurrent orders.
func TestOrder_TrialBesideOtherPlans_IsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SingleTrial = true })
	b.provisioned("paid")
	b.ended("lite", b.accepted(b.put("lite", order(azureLite))), "succeeded")
	b.ended("t", b.accepted(b.put("t", order(trial))), "succeeded")
	b.expect("a second trial", b.put("second", order(trial)), http.StatusUnprocessableEntity)
	b.ended("more", b.accepted(b.put("more", order(azure))), "succeeded")
	b.ended("t", b.accepted(b.delete("t")), "succeeded")
	b.ended("second", b.accepted(b.put("second", order(trial))), "succeeded")
}

// 16.
func TestOrder_DefaultRegion_IsOffered(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.EUAccounts = []string{"ga-1"} })
	for _, platform := range []string{"cf-eu10", "cf-us20", "cf-eu11", "cf-ch20"} {
		var offers struct {
			Services []struct {
				Plans []struct {
					ID      string `json:"id"`
					Name    string `json:"name"`
					Schemas struct {
						Instance struct {
							Create struct {
								Parameters struct {
									Properties struct {
										Region struct {
											Enum []string `json:"enum"`
										} `json:"region"`
									} `json:"properties"`
								} `json:"parameters"`
							} `json:"create"`
						} `json:"service_instance"`
					} `json:"schemas"`
				} `json:"plans"`
			} `json:"services"`
		}
		raw := b.send(http.MethodGet, "/oauth/"+platform+"/v2/catalog", nil).raw
		require.NoError(t, json.Unmarshal([]byte(raw), &offers))
		tried := 0
		for _, p := range offers.Services[0].Plans {
			offered := p.Schemas.Instance.Create.Parameters.Properties.Region.Enum
			if len(offered) == 0 {
				continue
			}
			tried++
			id := platform + "-" + p.Name
			b.accepted(b.send(http.MethodPut, "/oauth/"+platform+"/v2/service_instances/"+id+"?accepts_incomplete=true", order(p.ID)))
			testkit.Eventually(t, waitTimeout, "the request", func() bool { return len(b.orch.received(id)) == 1 })
			if got := b.newest(id).Runtime.Region; !slices.Contains(offered, got) {
				t.Errorf("%s: the region is %q, offered are %s", id, got, strings.Join(offered, ", "))
			}
		}
		if tried < 4 {
			t.Errorf("%s: only %d plans offer regions", platform, tried)
		}
	}
}

// The check for asynchronous requests comes before the others (docs/contracts/osb.md#decisions).
func TestUpdate_WithoutAsync_IsRejectedFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	update := func(what string) {
		t.Helper()
		a := b.send(http.MethodPatch, "/v2/service_instances/i", change(parameters(map[string]any{"autoScalerMax": 9})))
		if a.status != http.StatusUnprocessableEntity || a.text("error") != "AsyncRequired" {
			t.Errorf("%s: status %d %s", what, a.status, a.raw)
		}
	}
	update("nothing")
	b.accepted(b.patch("i", parameters(map[string]any{"autoScalerMax": 9})))
	update("an update")
	b.hold(false)
	b.ended("i", b.last("i", "").text("operation"), "succeeded")
	b.hold(true)
	b.accepted(b.delete("i"))
	update("a deprovisioning")
}

package instance

import (
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// Side is who can remove the cause of a problem.
type Side string

// The sides, as they are told to customers.
const (
	Customer    Side = "your"
	Operator    Side = "our"
	Hyperscaler Side = "the hyperscaler's"
)

// Cause is what customers are told about an error, without internal names.
type Cause struct {
	// Component and Reason select errors; an empty one matches all. The first cause that matches applies.
	Component, Reason string
	// Text says what is wrong.
	Text string
	Side Side
	// Advice says what to do after a failure.
	Advice string
	// ShowsMessage adds the message of the error, which is written for customers.
	ShowsMessage bool
}

const (
	contact = "Contact support with the ID of the operation."
	repeat  = "Repeat the request later. If it fails again, contact support with the ID of the operation."
)

// Causes returns what customers are told about errors. docs/platform.md has the same table.
func Causes() []Cause {
	return []Cause{
		{"", "ERR_INFRA_RESOURCES_DEPLETED", "the hyperscaler has no capacity for the machine type in the region", Hyperscaler, "Choose another machine type or region, or repeat the request later.", false},
		{"", "ERR_INFRA_QUOTA_EXCEEDED", "a quota of the hyperscaler account is used up", Hyperscaler, "Delete runtimes that you do not need, or contact support to raise the quota.", false},
		{"", "ERR_INFRA_RATE_LIMITS_EXCEEDED", "the hyperscaler limits the rate of requests", Hyperscaler, repeat, false},
		{"", "ERR_INFRA_DEPENDENCIES", "resources of the hyperscaler account block the change", Hyperscaler, contact, false},
		{"", "ERR_RETRYABLE_INFRA_DEPENDENCIES", "resources of the hyperscaler account block the change", Hyperscaler, repeat, false},
		{"", "ERR_INFRA_UNAUTHENTICATED", "the credentials of the hyperscaler account are not valid", Operator, contact, false},
		{"", "ERR_INFRA_UNAUTHORIZED", "the hyperscaler account lacks a permission", Operator, contact, false},
		{"", "ERR_CLEANUP_CLUSTER_RESOURCES", "resources in the cluster cannot be deleted", Customer, "Delete them, or remove their finalizers, and repeat the request.", false},
		{"", "ERR_PROBLEMATIC_WEBHOOK", "an admission webhook in the cluster blocks the change", Customer, "Remove or repair the webhook, and repeat the request.", false},
		{"", "ERR_CONFIGURATION_PROBLEM", "the configuration of the cluster is not possible", Customer, "Correct the parameters, and repeat the request.", false},
		{"", "ERR_RETRYABLE_CONFIGURATION_PROBLEM", "the configuration of the cluster is not possible now", Customer, "Check disruption budgets and webhooks in the cluster, and repeat the request.", false},
		{"", "err_kubeconfig", "the kubeconfig of the cluster cannot be used", Customer, "Send an update with a valid kubeconfig, or after a failed provisioning delete the instance and order again. If you have sent none, contact support.", false},
		{"", "err_shoot_of_another_subaccount", "the cluster belongs to another subaccount", Operator, contact, false},
		{"keb", "err_bad_request", "the parameters cannot be used", Customer, "Correct them, and repeat the request.", true},
		{"runtime", "", "the cluster cannot be reached", Customer, "Check that the cluster is running and that its API server can be reached, and repeat the request.", false},
		{"hyperscaler", "", "no hyperscaler account is available", Operator, repeat, false},
		{"azure", "", "a service of the hyperscaler does not accept the request", Hyperscaler, repeat, false},
		{"gardener", "", "the cluster cannot be created or changed", Operator, repeat, false},
		{"provisioner", "", "the cluster cannot be created or changed", Operator, repeat, false},
		{"reconciler", "", "Kyma cannot be installed or changed in the cluster", Operator, repeat, false},
		{"k8s client - keb", "", "Kyma cannot be installed or changed in the cluster", Operator, repeat, false},
		{"btp", "", "the access to SAP BTP services cannot be set up", Operator, repeat, false},
		{"ias", "", "the identity service does not accept the request", Operator, repeat, false},
		{"edp", "", "a service that registers the runtime does not accept the request", Operator, repeat, false},
		{"avs", "", "a service that monitors the runtime does not accept the request", Operator, repeat, false},
		{"lms", "", "a service that collects logs does not accept the request", Operator, repeat, false},
		{"", "err_keb_timeout", "a service did not answer in time", Operator, repeat, false},
		{"", "err_keb_no_answer", "a service did not answer in time", Operator, repeat, false},
		{"", "err_keb_no_worker", "a service is not available", Operator, repeat, false},
		{"", "err_system_unavailable", "a service is not available", Operator, repeat, false},
		{"", "", "an internal error", Operator, repeat, false},
	}
}

// CauseOf returns what customers are told about an error.
func CauseOf(e *event.Error) Cause {
	for _, c := range Causes() {
		if (c.Component == "" || strings.EqualFold(c.Component, e.Component)) && (c.Reason == "" || strings.EqualFold(c.Reason, e.Reason)) {
			if c.ShowsMessage && e.Message != "" {
				c.Text += ": " + Public(e.Message)
			}
			return c
		}
	}
	return Cause{Text: "an internal error", Side: Operator, Advice: repeat}
}

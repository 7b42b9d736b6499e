package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// The Kyma components with the overrides.
const (
	ComponentEventing = "knative-eventing"
	ComponentKafka    = "knative-eventing-kafka"

	ComponentNATSStreaming = "nats-streaming"
)

// kafkaPort is the port of the Kafka protocol in Event Hubs.
const kafkaPort = "9093"

// names matches the valid names of a namespace in Azure.
var names = regexp.MustCompile(`^[a-z][a-z0-9-]{4,48}[a-z0-9]$`)

// provision creates the Event Hubs of the instance, and configures the Kafka channel of its runtime.
func (s *shared) provision(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	name := "k" + strings.ToLower(op.InstanceID)
	if !names.MatchString(name) {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
			"instance id %q: Azure does not permit the namespace name %q, want at most 49 letters, digits and \"-\"", op.InstanceID, name)})
	}
	location := location(op.Runtime, s.cfg.Location)
	tags := map[string]string{"SubAccountID": op.Context.SubaccountID, tagInstance: op.InstanceID, "OperationID": op.ID}
	group, err := s.azure.groupOf(ctx, op.InstanceID)
	if err != nil {
		return s.failed(op, fmt.Errorf("look up the resource group: %w", err))
	}
	switch {
	case group == nil:
		if err := s.azure.createGroup(ctx, name, location, tags); err != nil {
			return s.failed(op, fmt.Errorf("create the resource group: %w", err))
		}
		log.Info("resource group created", "resource_group", name)
		group = &resource{Name: name}
	case group.Properties.State == stateDeleting:
		return worker.Wait(op, s.cfg.PollInterval, "the former Event Hubs of the instance are being deleted")
	}
	if err := op.SaveDetails(Details{ResourceGroup: group.Name}); err != nil {
		return op, 0, err
	}
	namespace, err := s.azure.namespace(ctx, group.Name, name)
	if err != nil {
		return s.failed(op, fmt.Errorf("look up the Event Hubs namespace: %w", err))
	}
	if namespace == nil {
		if namespace, err = s.azure.createNamespace(ctx, group.Name, name, location, tags); err != nil {
			return s.failed(op, fmt.Errorf("create the Event Hubs namespace: %w", err))
		}
		log.Info("Event Hubs namespace created", "namespace", name)
	}
	switch namespace.Properties.State {
	case stateSucceeded:
	case stateFailed:
		return worker.Fail(op, &worker.Error{Component: component, Reason: worker.ReasonState, Message: "the creation of the Event Hubs namespace failed"})
	default:
		return worker.Wait(op, s.cfg.PollInterval, "the Event Hubs namespace is being created")
	}
	secret, err := s.azure.connectionString(ctx, group.Name, name)
	if err != nil {
		return s.failed(op, fmt.Errorf("get the keys of the Event Hubs namespace: %w", err))
	}
	host, ok := endpoint(secret)
	if !ok {
		return worker.Retry(op, s.cfg.RetryInterval, &extclient.AnswerError{
			System: component, Method: "POST", Route: keysRoute, Err: fmt.Errorf("primaryConnectionString has no endpoint sb://<host>/"),
		})
	}
	setOverrides(op, host, secret)
	return op, 0, nil
}

const planTrial = "trial"

// orTrial is run, except for a trial: it has no Event Hubs and needs no Azure, but NATS Streaming without persistence.
func orTrial(run worker.StepFunc) worker.StepFunc {
	return func(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
		if op.Plan.Name != planTrial {
			return run(ctx, op, log)
		}
		op.SetOverrides(ComponentNATSStreaming, []worker.Override{{Key: "global.natsStreaming.persistence.enabled", Value: "false"}})
		return op, 0, nil
	}
}

// location returns the Azure region of the Event Hubs of a runtime: its own region on Azure, a nearby one on GCP
// (docs/contracts/event-hubs.md), otherwise the configured one.
func location(r event.Runtime, otherwise string) string {
	region := strings.ToLower(r.Region)
	switch strings.ToLower(r.Provider) {
	case "azure":
		return cmp.Or(r.Region, otherwise)
	case "gcp":
		switch {
		case strings.HasPrefix(region, "europe-"):
			return "westeurope"
		case strings.HasPrefix(region, "us-"):
			return "westus2"
		}
	}
	return otherwise
}

// endpoint returns the host of a connection string.
func endpoint(connectionString string) (string, bool) {
	for part := range strings.SplitSeq(connectionString, ";") {
		if host, ok := strings.CutPrefix(part, "Endpoint=sb://"); ok {
			host = strings.TrimSuffix(host, "/")
			return host, host != ""
		}
	}
	return "", false
}

func setOverrides(op worker.Operation, host, connectionString string) {
	op.SetOverrides(ComponentEventing, []worker.Override{
		{Key: "knative-eventing.channel.default.apiVersion", Value: "knativekafka.kyma-project.io/v1alpha1"},
		{Key: "knative-eventing.channel.default.kind", Value: "KafkaChannel"},
	})
	op.SetOverrides(ComponentKafka, []worker.Override{
		{Key: "kafka.brokers.hostname", Value: host, Secret: true},
		{Key: "kafka.brokers.port", Value: kafkaPort, Secret: true},
		{Key: "kafka.namespace", Value: "knative-eventing", Secret: true},
		{Key: "kafka.username", Value: "$ConnectionString", Secret: true},
		{Key: "kafka.password", Value: connectionString, Secret: true},
		{Key: "kafka.secretName", Value: "knative-kafka", Secret: true},
		{Key: "environment.kafkaProvider", Value: "azure", Secret: true},
	})
}

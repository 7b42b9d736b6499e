package document

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
)

// object is a YAML mapping that keeps the order of its keys.
type object struct{ node yaml.Node }

func newObject(pairs ...any) *object {
	o := &object{node: yaml.Node{Kind: yaml.MappingNode}}
	for pair := range slices.Chunk(pairs, 2) {
		o.set(pair[0].(string), pair[1])
	}
	return o
}

func (o *object) set(key string, v any) {
	var value yaml.Node
	if child, ok := v.(*object); ok {
		value = child.node
	} else if err := value.Encode(v); err != nil {
		panic("asyncapi: " + err.Error()) // only strings, lists and numbers reach this function
	}
	o.node.Content = append(o.node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &value)
}

func link(path string) *object { return newObject("$ref", path) }

// asyncAPI returns an AsyncAPI 3.0 document with a channel for each subject, an operation for each channel and side, and a message for each
// type.
func asyncAPI() ([]byte, error) {
	channels, operations, messages := newObject(), newObject(), newObject()
	for _, group := range bySubject(event.Contract()) {
		id, first := channelID(group[0].Subject), group[0]
		refs := newObject()
		var operationRefs []map[string]string
		for _, e := range group {
			refs.set(e.Name, link("#/components/messages/"+e.Name))
			operationRefs = append(operationRefs, map[string]string{"$ref": "#/channels/" + id + "/messages/" + e.Name})
			messages.set(e.Name, message(e))
		}
		channel := newObject("address", first.Subject, "description", "JetStream stream "+string(first.Stream)+", "+string(first.Direction)+".")
		if params := parameters(first.Subject); params != nil {
			channel.set("parameters", params)
		}
		channel.set("messages", refs)
		channels.set(id, channel)
		for _, side := range []struct{ action, prefix string }{{"send", "publish"}, {"receive", "consume"}} {
			operations.set(side.prefix+strings.ToUpper(id[:1])+id[1:], newObject(
				"action", side.action, "channel", link("#/channels/"+id), "messages", operationRefs))
		}
	}
	channels.set("signal", newObject(
		"address", event.SignalSubject("{key}"), "description", "JetStream stream "+string(event.StreamSignals)+", external system to orchestrator.",
		"parameters", newObject("key", newObject("description", "The key that a step waits for. It may have several tokens.")),
		"messages", newObject("Event", link("#/components/messages/Event")),
	))
	operations.set("publishSignal", newObject("action", "send", "channel", link("#/channels/signal")))
	operations.set("consumeSignal", newObject("action", "receive", "channel", link("#/channels/signal")))
	messages.set("Event", newObject(
		"name", "any type", "title", "Event", "summary", "An event for the step that waits for the key. Its source and ID identify it, and its data is any JSON "+
			"of at most 64 KiB, without secrets.",
		"contentType", "application/json", "traits", []map[string]string{{"$ref": "#/components/messageTraits/cloudEvent"}},
		"payload", newObject("description", "Any JSON."),
	))
	doc := newObject(
		"asyncapi", "3.0.0",
		"info", newObject("title", "Kyma Environment Broker events", "version", "1.0.0", "description",
			"CloudEvents 1.0 in binary mode on NATS JetStream: attributes in ce- headers, JSON in the payload, the trace in ce-traceparent. "+
				registration+" Generated from libs/event; do not edit."),
		"defaultContentType", "application/json",
		"channels", channels,
		"operations", operations,
		"components", newObject("messages", messages, "messageTraits", newObject("cloudEvent", newObject("headers", headers()))),
	)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&doc.node); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// registration describes how a worker registers. The steps of a worker that does not register count as steps without a worker.
const registration = "A worker announces itself as a NATS micro service (ADR-32 of NATS) named \"keb-worker-{worker}\", which answers " +
	"$SRV.PING and $SRV.INFO. The metadata of the service are the strings \"worker\" (its name, as in the subjects), \"version\" (any text), " +
	"\"steps\" (the names of the steps that it executes, separated by commas) and, for a replica with a consumer for ramps, \"ramped\" (\"true\"). The orchestrator requests $SRV.INFO every few seconds. A step that no " +
	"answer contains has no worker. An endpoint at keb.worker.{worker}.ping that returns the same data as JSON is customary. " +
	"On keb.worker.{worker}.cancel, which is on no stream, the orchestrator notifies all replicas of a worker of a command that should end early, " +
	"with the JSON {\"operationId\", \"cursor\", \"reason\"}: the worker ends the step and publishes its result as usual. A notice may be lost. " +
	"On keb.worker.{worker}.progress, which is on no stream, a worker may report how far a running step is, with the JSON {\"operationId\", \"cursor\", \"message\", \"percent\"}. " +
	"Facts are published at least once, even if an orchestrator is killed, and the facts of an operation have no gaps. A repeated fact has the " +
	"same ce-id; readers must ignore it. Facts may arrive late and out of order; the cursor orders the facts of an operation. After KEB_FACTS was lost, " +
	"\"keb facts replay --since\" publishes the facts again from the history of operations; consecutive tries of a step with the " +
	"same result may then be one fact, with their number in tries."

// bySubject groups entries by subject, in order of appearance.
func bySubject(entries []event.Entry) [][]event.Entry {
	var groups [][]event.Entry
	at := map[string]int{}
	for _, e := range entries {
		i, ok := at[e.Subject]
		if !ok {
			i = len(groups)
			at[e.Subject] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// channelID returns the fixed tokens of a subject as an identifier: "keb.fact.{operationType}.step-finished" is factStepFinished.
func channelID(subject string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(strings.TrimPrefix(subject, "keb."), func(r rune) bool { return r == '.' || r == '-' }) {
		switch {
		case strings.HasPrefix(w, "{"):
		case b.Len() == 0:
			b.WriteString(w)
		default:
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

func parameters(subject string) *object {
	known := map[string]string{
		"operationType": "Operation type.",
		"worker":        "Name of the worker, which is also its durable consumer.",
		"step":          "Name of the step.",
	}
	params := newObject()
	for w := range strings.SplitSeq(subject, ".") {
		name, ok := strings.CutPrefix(w, "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "}")
		p := newObject("description", known[name])
		if name == "operationType" {
			p.set("enum", event.OperationTypes())
		}
		params.set(name, p)
	}
	if len(params.node.Content) == 0 {
		return nil
	}
	return params
}

func message(e event.Entry) *object {
	return newObject(
		"name", string(e.Type),
		"title", e.Name,
		"summary", e.Summary,
		"contentType", "application/json",
		"traits", []map[string]string{{"$ref": "#/components/messageTraits/cloudEvent"}},
		"payload", link("events/"+SchemaFile(e.Type)),
	)
}

func headers() *object {
	text := func(description string) *object { return newObject("type", "string", "description", description) }
	return newObject("type", "object",
		"required", []string{"ce-specversion", "ce-id", "ce-type", "ce-source"},
		"properties", newObject(
			"ce-specversion", newObject("type", "string", "const", "1.0"),
			"ce-id", text("Unique within the source. Percent-encoded, like every ce- header."),
			"ce-type", text("The name of the message."),
			"ce-source", text("The sender, for example /keb/orchestrator."),
			"ce-subject", text("The operation id."),
			"ce-time", newObject("type", "string", "format", "date-time"),
			"ce-datacontenttype", newObject("type", "string", "const", "application/json"),
			"ce-traceparent", text("Distributed Tracing extension."),
			"Nats-Msg-Id", text("The stream drops a second message with the same ID."),
		))
}

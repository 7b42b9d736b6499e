package docpage

import "strings"

// asyncAPI renders asyncapi.yaml with the schemas that it refers to.
func asyncAPI(root string) ([]byte, error) {
	docs := newDocuments(root)
	api, err := docs.open("asyncapi.yaml")
	if err != nil {
		return nil, err
	}
	var p page
	p.line("# Events")
	p.line(generated, "api/asyncapi.yaml and api/events")
	p.paragraph(strings.TrimSuffix(api.get("info", "description").text(), " Generated from libs/event; do not edit."))
	p.paragraph("Fields marked with * are always there. The contract itself is [api/asyncapi.yaml](../api/asyncapi.yaml) with the JSON Schemas in " +
		"[api/events](../api/events).")
	p.line("\n| Subject | Events | |\n|---|---|---|")
	_, channels := api.get("channels").members()
	for _, channel := range channels {
		_, messages := channel.get("messages").members()
		var names []string
		for _, m := range messages {
			title := m.get("title").text()
			names = append(names, "["+title+"]("+anchor(title)+")")
		}
		p.line("| `%s` | %s | %s |", channel.get("address").text(), strings.Join(names, ", "), cell(channel.get("description").text()))
	}
	p.parameters(channels)
	p.attributes(api.get("components", "messageTraits"))
	seen, order := map[string]node{}, []string{}
	_, messages := api.get("components", "messages").members()
	for _, m := range messages {
		p.line("\n## %s", m.get("title").text())
		p.line("\n`%s`. %s", m.get("name").text(), m.get("summary").text())
		p.object(m.get("payload"))
		_, properties := m.get("payload", "properties").members()
		for _, property := range properties {
			inner(property, seen, &order)
		}
	}
	p.line("\n## Objects")
	for _, name := range order {
		p.line("\n### %s", name)
		p.paragraph(seen[name].get("description").text())
		p.object(seen[name])
	}
	return docs.page(&p)
}

// parameters explains the parts of subjects that vary, each once.
func (p *page) parameters(channels []node) {
	told := map[string]bool{}
	for _, channel := range channels {
		names, values := channel.get("parameters").members()
		for i, name := range names {
			if told[name] {
				continue
			}
			told[name] = true
			text := values[i].get("description").text()
			if allowed := values[i].get("enum").texts(); len(allowed) > 0 {
				text += " One of `" + strings.Join(allowed, "`, `") + "`."
			}
			p.line("\n`{%s}`: %s", name, text)
		}
	}
}

// attributes writes the CloudEvents attributes that every message has.
func (p *page) attributes(traits node) {
	_, values := traits.members()
	for _, trait := range values {
		p.line("\n## Attributes")
		p.paragraph("Every message carries the attributes of CloudEvents as headers.")
		p.object(trait.get("headers"))
	}
}

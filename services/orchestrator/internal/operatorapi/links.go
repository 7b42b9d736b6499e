package operatorapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/api/operator"
)

// Links are named templates of addresses in other systems, such as those with logs and traces.
type Links []operator.Link

// linkNames are the names of the values that a template may contain in braces.
var linkNames = []string{"operation", "instance", "type", "plan", "runtime", "shoot", "region", "subaccount", "globalaccount", "trace", "from", "to"}

// ParseLinks parses NAME=URL, separated by blanks. An underscore in a name stands for a blank. The error names the link.
func ParseLinks(text string) (Links, error) {
	var links Links
	for field := range strings.FieldsSeq(text) {
		name, template, ok := strings.Cut(field, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: must have the form NAME=URL", field)
		}
		filled := fill(template, func(string) string { return "x" })
		if u, err := url.Parse(filled); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%s: %q must be an absolute http or https URL", name, template)
		}
		if i := strings.IndexAny(filled, "{}"); i >= 0 {
			return nil, fmt.Errorf("%s: %q has a name in braces that is not one of %s", name, template, strings.Join(linkNames, ", "))
		}
		links = append(links, operator.Link{Name: strings.ReplaceAll(name, "_", " "), URL: template})
	}
	return links, nil
}

// fill replaces the known names in braces.
func fill(template string, value func(name string) string) string {
	for _, name := range linkNames {
		if placeholder := "{" + name + "}"; strings.Contains(template, placeholder) {
			template = strings.ReplaceAll(template, placeholder, value(name))
		}
	}
	return template
}

// of returns the links of an operation. It leaves out those with a value that the operation does not have.
func (l Links) of(d *operator.OperationDetail) []operator.Link {
	if len(l) == 0 {
		return nil
	}
	to := "now"
	if d.FinishedAt != nil {
		to = strconv.FormatInt(d.FinishedAt.UnixMilli(), 10)
	}
	values := map[string]string{
		"operation": d.ID, "instance": d.InstanceID, "type": string(d.Type), "plan": d.Plan, "runtime": d.RuntimeName, "shoot": d.ShootName,
		"region": d.Region, "subaccount": d.SubaccountID, "globalaccount": d.GlobalAccountID, "trace": d.TraceID,
		"from": strconv.FormatInt(d.CreatedAt.UnixMilli(), 10), "to": to,
	}
	var links []operator.Link
	for _, link := range l {
		var missing bool
		at := fill(link.URL, func(name string) string {
			missing = missing || values[name] == ""
			return strings.ReplaceAll(url.QueryEscape(values[name]), "+", "%20") // for paths, too
		})
		if !missing {
			links = append(links, operator.Link{Name: link.Name, URL: at})
		}
	}
	return slices.Clip(links)
}

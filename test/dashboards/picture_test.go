package dashboards

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/test/internal/harness"
)

// TestPicture_Dashboards_AreDrawn draws every dashboard of KEB with data of a live system, without Grafana: for docs, and to look at a change.
// make dashboards-picture runs it. It is no pixel-exact copy of Grafana: it shows places, values, colours and what is empty.
func TestPicture_Dashboards_AreDrawn(t *testing.T) {
	dir := os.Getenv("KEB_PICTURES")
	if dir == "" {
		t.Skip("draws pictures only for make dashboards-picture, which sets KEB_PICTURES")
	}
	browser := cmp.Or(os.Getenv("KEB_CHROMIUM"), "/usr/bin/chromium")
	sys := harness.Start(t, harness.Options{Accounts: 300, Overlays: []string{"testdata/overlay"}})
	p := startPrometheus(t, ruleFile, map[string]string{"keb": sys.OperatorAddr})
	load(t, sys)
	p.awaitScrape()
	for _, b := range boards(t) {
		drawing := picture{prometheus: p, choices: map[string]string{"$worker": "edp"}}
		page := filepath.Join(t.TempDir(), b.UID+".html")
		require.NoError(t, os.WriteFile(page, []byte(drawing.draw(b)), 0o600))
		// The whole dashboard, and its beginning in a size for docs.
		for name, size := range map[string]struct {
			height int
			scale  float64
		}{b.UID: {drawing.height, 1}, b.UID + "-top": {1300, 0.72}} {
			out := filepath.Join(dir, name+".png")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			shot := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
				"--user-data-dir="+t.TempDir(), fmt.Sprintf("--window-size=%d,%d", pictureWidth, size.height),
				fmt.Sprintf("--force-device-scale-factor=%g", size.scale), "--screenshot="+out, "file://"+page)
			text, err := shot.CombinedOutput()
			cancel()
			require.NoErrorf(t, err, "%s: %s", browser, text)
			info, err := os.Stat(out)
			require.NoErrorf(t, err, "%s", text)
			t.Logf("%s: %d kB; empty panels: %s", out, info.Size()>>10, strings.Join(drawing.empty, ", "))
		}
	}
}

// load runs operations for two minutes, with an outage and operations that are stuck at the end.
func load(t *testing.T, sys *harness.System) {
	t.Helper()
	var orders []*harness.Order
	end := time.Now().Add(2 * time.Minute)
	pause := time.NewTicker(700 * time.Millisecond)
	defer pause.Stop()
	for i := 0; time.Now().Before(end); i++ {
		o := harness.Azure()
		switch i % 4 {
		case 1:
			o = harness.Trial()
		case 3:
			o.PlanID, o.Parameters = harness.PlanAWS, map[string]any{"name": "aws-e2e", "region": "eu-central-1"}
		}
		if i%9 == 5 {
			sys.Fail("provisioner", o.InstanceID)
		}
		if o.PlanID == harness.PlanAWS && i < 120 { // the step of the overlay has no worker: a few are enough
			o.PlanID, o.Parameters = harness.PlanAzure, harness.Azure().Parameters
		}
		sys.Provision(o)
		orders = append(orders, o)
		if i > 12 && i%3 == 0 {
			old := orders[i-12]
			_, _ = sys.Platform().Update(t.Context(), old.InstanceID, osbclient.Change{ // 422 while it is provisioned, or has failed
				ServiceID: harness.ServiceID, Parameters: map[string]any{"machineType": "Standard_D8_v3"},
			})
		}
		if i > 20 && i%5 == 0 {
			_, _ = sys.Platform().Deprovision(t.Context(), orders[i-20].InstanceID, harness.ServiceID, orders[i-20].PlanID)
		}
		switch i {
		case 40:
			sys.Fault("edp", `{"outage": true}`)
		case 70:
			sys.Fault("edp", `{}`)
		case 60, 100:
			keb(t, sys, "upgrade", "cluster", "--target", "plan=azure", "--kubernetes-version", "1.31.4", "--parallel-workers", "5")
		case 140:
			sys.Fault("edp", `{"outage": true}`)
		}
		<-pause.C
	}
	action(t, sys, harness.Get[struct{ Data []struct{ ID string } }](sys, "http://"+sys.OperatorAddr+"/operations?state=failed&page_size=1").Data[0].ID,
		"retry", http.StatusNoContent, http.StatusConflict)
}

const (
	pictureWidth = 1600
	column       = (pictureWidth - 16) / 24.0
	unitHeight   = 38
)

// grafana are the colours of Grafana by name.
var grafana = map[string]string{
	"green": "#73BF69", "red": "#F2495C", "dark-red": "#C4162A", "blue": "#5794F2", "yellow": "#FADE2A", "orange": "#FF9830", "dark-orange": "#FA6400",
	"purple": "#B877D9", "light-purple": "#CA95E5", "semi-dark-purple": "#A352CC", "light-green": "#96D98D", "light-yellow": "#FFEE52",
	"super-light-yellow": "#FFF899", "super-light-blue": "#C0D8FF", "super-light-orange": "#FFCB7D",
}

// palette is the classic palette of Grafana, in its order.
var palette = []string{"#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0", "#37872D", "#FADE2A", "#447EBC", "#C15C17"}

// picture draws a dashboard.
type picture struct {
	prometheus *server
	choices    map[string]string
	height     int
	empty      []string
}

func (d *picture) draw(b board) string {
	var out strings.Builder
	out.WriteString(`<!doctype html><meta charset="utf-8"><style>
body{margin:0;background:#111217;color:#ccccdc;font:12px Inter,"DejaVu Sans",Arial,sans-serif}h1{font-size:17px;margin:10px 12px;font-weight:500}
.p{position:absolute;box-sizing:border-box;background:#181b1f;border:1px solid #2c3235;border-radius:2px;padding:5px 8px;overflow:hidden}
.p h2{font-size:13px;margin:0 0 4px;font-weight:500;white-space:nowrap}.row{position:absolute;font-size:15px;font-weight:500;padding:8px}
.n{font-size:34px;text-align:center;font-weight:500}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:3px 6px;border-bottom:1px solid #2c3235;white-space:nowrap}
th{color:#6e9fff;font-weight:500}.num{text-align:right}.none{color:#8e8e8e;text-align:center;padding-top:30px}.l{display:inline-block;width:14px;margin-right:6px;vertical-align:3px}
.g{display:flex}.g>div{overflow:hidden;flex:1}.bar{height:13px;background:#5794F2}svg text{fill:#9a9aa5;font-size:10.500px}</style><h1>` + html.EscapeString(b.Title) + `</h1>`)
	const top = 44
	for _, p := range b.Panels {
		g := p.GridPos
		x, y, w, h := 8+float64(g.X)*column, top+g.Y*unitHeight, float64(g.W)*column-6, g.H*unitHeight-6
		d.height = max(d.height, y+h+12)
		if p.Type == "row" {
			fmt.Fprintf(&out, `<div class="row" style="left:%gpx;top:%dpx">⌄ %s</div>`, x, y, html.EscapeString(p.Title))
			continue
		}
		title := strings.ReplaceAll(p.Title, "$type", "All")
		body := d.body(p, w-18, float64(h-32))
		if body == "" {
			body = `<div class="none">No data</div>`
			d.empty = append(d.empty, p.Title)
		}
		fmt.Fprintf(&out, `<div class="p" style="left:%gpx;top:%dpx;width:%gpx;height:%dpx"><h2>%s</h2>%s</div>`, x, y, w, h, html.EscapeString(title), body)
	}
	return out.String()
}

// line is a series with its name and colour.
type line struct {
	name, colour string
	dashed       bool
	points       [][2]float64
	// last is the newest value, also if the points are stacked.
	last float64
}

func (d *picture) body(p panel, w, h float64) string {
	var lines []line
	rows := map[string]map[string]string{}
	for _, q := range p.Targets {
		expr := substitute(q.Expr, d.prometheus.variables(d.choices))
		ask := d.prometheus.queryRange
		if q.Instant {
			ask = d.prometheus.query
		}
		got, err := ask(expr)
		if err != nil {
			return `<div class="none">` + html.EscapeString(err.Error()) + `</div>`
		}
		for _, r := range got {
			if p.Type == "table" {
				mergeRow(rows, r, "Value #"+q.RefID, len(p.Targets) == 1)
				continue
			}
			if l := (line{name: legend(q.LegendFormat, r.Metric), points: points(r), last: r.last()}); len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
	}
	colourLines(p, lines)
	switch {
	case p.Type == "table" && len(rows) > 0:
		return p.table(rows)
	case len(lines) == 0:
		return ""
	case p.Type == "stat":
		return fmt.Sprintf(`<div class="n" style="color:%s;padding-top:%gpx">%s</div>`, p.threshold(lines[0].last), h/2-26, p.format(lines[0].last))
	case p.Type == "bargauge":
		return p.bars(lines)
	}
	return p.graph(lines, w, h, float64(d.prometheus.start.Unix()), float64(time.Now().Unix()), d.prometheus.scrape.Seconds())
}

var labelInLegend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

func legend(format string, labels map[string]string) string {
	return labelInLegend.ReplaceAllStringFunc(format, func(m string) string { return labels[labelInLegend.FindStringSubmatch(m)[1]] })
}

func points(r result) (out [][2]float64) {
	for _, v := range append(r.Values, r.Value) {
		if len(v) != 2 {
			continue
		}
		at, _ := v[0].(float64)
		var n float64
		if text, _ := v[1].(string); text != "NaN" {
			if _, err := fmt.Sscan(text, &n); err == nil && !math.IsInf(n, 0) {
				out = append(out, [2]float64{at, n})
			}
		}
	}
	return out
}

// colourLines gives each line the colour of the last override that matches, or of the palette.
func colourLines(p panel, lines []line) {
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.name, b.name) })
	shades := map[string]int{}
	for i := range lines {
		l := &lines[i]
		l.colour = palette[i%len(palette)]
		if name := p.colour(l.name); name != "" {
			l.colour = cmp.Or(grafana[name], name)
			if n := shades[name]; n > 0 {
				l.colour = fmt.Sprintf("color-mix(in srgb, %s %d%%, white)", l.colour, max(35, 100-18*n))
			}
			shades[name]++
		}
		for _, o := range p.FieldConfig.Overrides {
			if pattern := strings.Trim(string(o.Matcher.Options), `"/`); o.Matcher.ID == "byRegexp" && o.Properties[0].ID == "custom.lineStyle" {
				l.dashed = l.dashed || regexp.MustCompile(pattern).MatchString(l.name)
			}
		}
	}
}

// mergeRow puts a value into the row with its labels, as the transformation merge does for targets with the same labels.
func mergeRow(rows map[string]map[string]string, r result, value string, only bool) {
	if only {
		value = "Value"
	}
	key := fmt.Sprint(r.Metric)
	if rows[key] == nil {
		rows[key] = maps.Clone(r.Metric)
		if rows[key] == nil {
			rows[key] = map[string]string{}
		}
	}
	rows[key][value] = fmt.Sprint(r.last())
}

func (p panel) table(rows map[string]map[string]string) string {
	columns, names := []string{}, map[string]string{}
	for _, row := range rows {
		for name := range row {
			if !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
	}
	index := map[string]int{}
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			maps.Copy(names, t.Options.RenameByName)
			index = t.Options.IndexByName
			columns = slices.DeleteFunc(columns, func(c string) bool { return t.Options.ExcludeByName[c] })
		}
	}
	slices.SortFunc(columns, func(a, b string) int { return cmp.Or(cmp.Compare(index[a], index[b]), strings.Compare(a, b)) })
	var out strings.Builder
	out.WriteString("<table><tr>")
	for _, c := range columns {
		out.WriteString("<th>" + html.EscapeString(cmp.Or(names[c], c)) + "</th>")
	}
	out.WriteString("</tr>")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		out.WriteString("<tr>")
		for _, c := range columns {
			text := rows[key][c]
			if n := 0.0; strings.HasPrefix(c, "Value") {
				if _, err := fmt.Sscan(text, &n); err == nil {
					text = p.formatAs(p.unitOf(cmp.Or(names[c], c)), n)
				}
			}
			out.WriteString("<td>" + html.EscapeString(text) + "</td>")
		}
		out.WriteString("</tr>")
	}
	return out.String() + "</table>"
}

// unitOf returns the unit of a column, which an override may set.
func (p panel) unitOf(column string) string {
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if strings.Trim(string(o.Matcher.Options), `"`) == column && property.ID == "unit" {
				return strings.Trim(string(property.Value), `"`)
			}
		}
	}
	return p.FieldConfig.Defaults.Unit
}

func (p panel) bars(lines []line) string {
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(b.last, a.last) })
	most := max(lines[0].last, 1e-9)
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, `<div style="display:flex;margin:4px 0"><span style="width:46%%;overflow:hidden;white-space:nowrap">%s</span><span style="flex:1"><div class="bar" style="width:%g%%"></div></span><span style="width:64px" class="num">%s</span></div>`,
			html.EscapeString(l.name), 100*l.last/most, p.format(l.last))
	}
	return out.String()
}

func (p panel) threshold(v float64) string {
	colour := "green"
	for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value == nil || v >= *s.Value {
			colour = s.Color
		}
	}
	return cmp.Or(grafana[colour], colour)
}

func (p panel) format(v float64) string { return p.formatAs(p.FieldConfig.Defaults.Unit, v) }

func (p panel) formatAs(unit string, v float64) string {
	short := func(v float64, base float64, units ...string) string {
		i := 0
		for math.Abs(v) >= base && i < len(units)-1 {
			v, i = v/base, i+1
		}
		digits := 3
		if v == math.Trunc(v) || math.Abs(v) >= 100 || p.FieldConfig.Defaults.Decimals != nil && *p.FieldConfig.Defaults.Decimals == 0 {
			digits = 0
		} else if math.Abs(v) >= 1 {
			digits = 1
		}
		return fmt.Sprintf("%.*f", digits, v) + units[i]
	}
	switch unit {
	case "percentunit":
		return short(100*v, math.Inf(1), "%")
	case "s":
		if math.Abs(v) < 1 && v != 0 {
			return short(v*1000, math.Inf(1), " ms")
		}
		return short(v, 60, " s", " min", " h")
	case "bytes":
		return short(v, 1024, " B", " KiB", " MiB", " GiB")
	case "ops", "opm", "reqps", "mps":
		return short(v, 1000, "", " K", " M") + map[string]string{"ops": " ops/s", "opm": " ops/m", "reqps": " req/s", "mps": " msg/s"}[unit]
	}
	return short(v, 1000, "", " K", " M")
}

// nice returns a distance for ticks of at least v: 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

// graph draws lines with axes and a legend.
func (p panel) graph(lines []line, w, h, from, to, step float64) string {
	right := p.Options.Legend.Placement == "right"
	legendHeight := min(float64(18*len(lines)), 0.34*h)
	gw, gh := w, h-legendHeight-4
	if right {
		gw, gh = w*0.72, h
	}
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	most, base := 0.0, map[float64]float64{}
	for i := range lines {
		for j := range lines[i].points {
			if stacked {
				at := lines[i].points[j][0]
				base[at] += lines[i].points[j][1]
				lines[i].points[j][1] = base[at]
			}
			most = max(most, lines[i].points[j][1])
		}
	}
	if m := p.FieldConfig.Defaults.Max; m != nil {
		most = max(most, *m)
	}
	tick := nice(most / 4)
	most = max(math.Ceil(most/tick)*tick, tick)
	const left, bottom = 74.0, 18.0
	x := func(at float64) float64 { return left + (at-from)/(to-from)*(gw-left-6) }
	y := func(v float64) float64 { return 4 + (gh-bottom-4)*(1-v/most) }
	var out strings.Builder
	fmt.Fprintf(&out, `<div class="g" style="flex-direction:%s"><svg width="%g" height="%g" style="flex:none">`, map[bool]string{true: "row", false: "column"}[right], gw, gh)
	for v := 0.0; v <= most*1.001; v += tick {
		fmt.Fprintf(&out, `<line x1="%g" x2="%g" y1="%g" y2="%g" stroke="#2c3235"/><text x="%g" y="%g" text-anchor="end">%s</text>`, left, gw-6, y(v), y(v), left-5, y(v)+4, p.format(v))
	}
	for i := range 5 {
		at := from + (to-from)*float64(i)/4
		fmt.Fprintf(&out, `<text x="%g" y="%g" text-anchor="middle">%s</text>`, min(max(x(at), left+20), gw-26), gh-4, time.Unix(int64(at), 0).UTC().Format("15:04:05"))
	}
	for _, l := range slices.Backward(lines) { // what is stacked hides what is below it
		path, before := "", math.Inf(-1)
		if stacked {
			first, last := l.points[0], l.points[len(l.points)-1]
			area := ""
			for _, pt := range l.points {
				area += fmt.Sprintf("L%.1f %.1f", x(pt[0]), y(pt[1]))
			}
			fmt.Fprintf(&out, `<path d="M%.1f %.1f%sL%.1f %.1fZ" style="fill:color-mix(in srgb, %s 35%%, #181b1f)"/>`, x(first[0]), y(0), area, x(last[0]), y(0), l.colour)
		}
		for _, pt := range l.points {
			verb := "L"
			if pt[0]-before > 3*step {
				verb = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", verb, x(pt[0]), y(pt[1]))
			before = pt[0]
		}
		dash := ""
		if l.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(&out, `<path d="%s" fill="none" style="stroke:%s" stroke-width="1.500"%s/>`, path, l.colour, dash)
	}
	out.WriteString(`</svg><div style="max-height:` + fmt.Sprint(max(legendHeight, map[bool]float64{true: h}[right])) + `px">`)
	for _, l := range lines {
		style := "solid"
		if l.dashed {
			style = "dashed"
		}
		fmt.Fprintf(&out, `<div style="display:flex;height:18px;white-space:nowrap"><span style="flex:1;overflow:hidden"><span class="l" style="border-top:2px %s;border-color:%s"></span>%s</span><span class="num" style="margin-left:8px">%s</span></div>`,
			style, l.colour, html.EscapeString(l.name), p.format(l.last))
	}
	return out.String() + `</div></div>`
}

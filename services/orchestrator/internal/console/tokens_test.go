package console

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contrast is the minimum contrast of text and of other elements by WCAG 2.2, level AA.
const (
	contrastOfText   = 4.5
	contrastOfShapes = 3.0
)

type colour struct{ light, dark string }

func tokens(t *testing.T) map[string]colour {
	t.Helper()
	text, err := files.ReadFile("static/tokens.css")
	require.NoError(t, err)
	out := map[string]colour{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = colour{light: m[2], dark: m[3]}
	}
	if len(out) < 20 {
		t.Fatalf("only %d colours are found", len(out))
	}
	return out
}

// luminance is the relative luminance of WCAG 2.2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	weights := []float64{0.2126, 0.7152, 0.0722}
	sum := 0.0
	for i, weight := range weights {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		require.NoErrorf(t, err, "%s", hex)
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

func TestContrast_KnownPairs_MatchReference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want float64
	}{{"#000000", "#ffffff", 21}, {"#777777", "#ffffff", 4.48}, {"#123456", "#123456", 1}} {
		if got := contrast(t, c.a, c.b); math.Abs(got-c.want) > 0.01 {
			t.Errorf("contrast of %s and %s is %.2f, want %.2f", c.a, c.b, got, c.want)
		}
	}
}

func TestTokens_BothThemes_HaveEnoughContrast(t *testing.T) {
	t.Parallel()
	all := tokens(t)
	type pair struct {
		front, back string
		least       float64
	}
	var pairs []pair
	text := func(front string, backs ...string) {
		for _, back := range backs {
			pairs = append(pairs, pair{front, back, contrastOfText})
		}
	}
	grounds := []string{"bg", "surface", "raised", "select"}
	for _, front := range []string{"text", "muted", "accent", "danger"} {
		text(front, grounds...)
	}
	text("on-accent", "accent")
	text("on-danger", "danger")
	pairs = append(pairs, pair{"control", "surface", contrastOfShapes}, pair{"control", "bg", contrastOfShapes})
	for _, state := range []string{"ok", "bad", "run", "wait", "idle", "gone"} {
		text(state, append(grounds, state+"-bg")...)
		pairs = append(pairs, pair{state + "-bar", "surface", contrastOfShapes})
	}
	for _, p := range pairs {
		front, back := all[p.front], all[p.back]
		if front.light == "" || back.light == "" {
			t.Errorf("%s or %s is not a token", p.front, p.back)
			continue
		}
		for theme, got := range map[string]float64{"light": contrast(t, front.light, back.light), "dark": contrast(t, front.dark, back.dark)} {
			if got < p.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want at least %.1f", theme, p.front, p.back, got, p.least)
			}
		}
	}
}

// A color outside the tokens has no dark theme and no contrast test.
func TestStyles_Colors_AreTokens(t *testing.T) {
	t.Parallel()
	text, err := files.ReadFile("static/console.css")
	require.NoError(t, err)
	// Shadows, the backdrop of a dialog, and the logo are the same in both themes.
	allowed := regexp.MustCompile(`box-shadow|text-shadow|backdrop|\.mark |light-dark\(`)
	for i, line := range strings.Split(string(text), "\n") {
		if regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b[^{]*;|rgba?\(|hsl`).MatchString(line) && !allowed.MatchString(line) {
			t.Errorf("console.css:%d: %s", i+1, strings.TrimSpace(line))
		}
	}
	used := regexp.MustCompile(`var\(--([a-z0-9-]+)\)`)
	root, err := files.ReadFile("static/tokens.css")
	require.NoError(t, err)
	for _, m := range used.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(root), "--"+m[1]+":") {
			t.Errorf("--%s is not a token", m[1])
		}
	}
}

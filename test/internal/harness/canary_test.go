package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"testing"
)

func TestACanaryIsFoundInEveryEncoding(t *testing.T) {
	t.Parallel()
	canary := NewCanary()
	pieces := NewCanaries(map[string]Canary{"it": canary})
	text := "token: " + canary.String() + "\n"
	inJSON, err := json.Marshal(map[string]string{"token": canary.String()})
	if err != nil {
		t.Fatal(err)
	}
	once := base64.StdEncoding.EncodeToString([]byte(text))
	for name, content := range map[string]string{
		"plain": text, "JSON": string(inJSON), "URL": url.QueryEscape(text), "base64": once, "base64, shifted": base64.StdEncoding.EncodeToString([]byte("y" + text)),
		"base64 twice": base64.StdEncoding.EncodeToString([]byte("data: " + once)), "a piece": "..." + canary.String()[10:18] + "...",
	} {
		if len(pieces.In([]byte(content))) == 0 {
			t.Errorf("not found in %s: %s", name, content)
		}
	}
	if names := pieces.In(bytes.Repeat([]byte("nothing here "), 1000)); len(names) > 0 {
		t.Errorf("%v found where it is not", names)
	}
}

package kyma

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/extclient"
)

// Component is a part of Kyma that the Reconciler installs in a runtime.
type Component struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// URL is the address of the component's charts; empty for components of Kyma itself.
	URL string `json:"url,omitempty"`
}

// artifactsSystem is the name of the store of Kyma's artifacts in errors and metrics.
const artifactsSystem = "artifacts"

// artifactsTimeout is the timeout of one call. It is short, because the lists are small static files.
const artifactsTimeout = 10 * time.Second

// The paths of the component lists in the artifacts' store.
const (
	releasedComponents    = "/kyma-prow-artifacts/{version}/kyma-components.yaml"
	developmentComponents = "/kyma-development-artifacts/{version}/kyma-components.yaml"
)

// onDemand reports whether a version is that of a pull request or of a commit on the main branch. Their artifacts are development
// artifacts.
func onDemand(version string) bool {
	return strings.HasPrefix(version, "PR-") || strings.HasPrefix(version, "main-")
}

// artifacts reads the published component lists of the versions of Kyma.
type artifacts struct {
	client *extclient.Client

	mu sync.Mutex
	// released caches the lists of releases, which never change.
	released map[string][]Component
}

func newArtifacts(url string, deps extclient.Deps) (*artifacts, error) {
	client, err := extclient.New(extclient.Config{System: artifactsSystem, BaseURL: url, Timeout: artifactsTimeout}, nil, deps)
	return &artifacts{client: client, released: map[string][]Component{}}, err
}

// components returns the components of a version in the order of installation.
func (a *artifacts) components(ctx context.Context, version string) ([]Component, error) {
	a.mu.Lock()
	known, ok := a.released[version]
	a.mu.Unlock()
	if ok {
		return known, nil
	}
	route := releasedComponents
	if onDemand(version) {
		route = developmentComponents
	}
	var document []byte
	err := a.client.Do(ctx, extclient.Request{
		Method: http.MethodGet, Route: route, Params: []string{version}, Accept: []int{http.StatusOK}, Raw: true,
	}, &document)
	if err != nil {
		return nil, err
	}
	list, err := parseComponents(document)
	if err != nil {
		return nil, &extclient.AnswerError{
			System: artifactsSystem, Method: http.MethodGet, Route: route, Err: fmt.Errorf("components of Kyma %s: %w", version, err),
		}
	}
	if !onDemand(version) {
		a.mu.Lock()
		a.released[version] = list
		a.mu.Unlock()
	}
	return list, nil
}

// parseComponents parses a kyma-components.yaml. Prerequisites come before components.
func parseComponents(document []byte) ([]Component, error) {
	type entry struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	var content struct {
		DefaultNamespace string  `json:"defaultNamespace"`
		Prerequisites    []entry `json:"prerequisites"`
		Components       []entry `json:"components"`
	}
	if err := yaml.Unmarshal(document, &content); err != nil {
		return nil, errors.New("it is not the expected YAML")
	}
	list := make([]Component, 0, len(content.Prerequisites)+len(content.Components))
	for _, e := range append(content.Prerequisites, content.Components...) {
		if e.Name == "" {
			return nil, fmt.Errorf("component %d has no name", len(list)+1)
		}
		if e.Namespace == "" {
			e.Namespace = content.DefaultNamespace
		}
		list = append(list, Component{Name: e.Name, Namespace: e.Namespace})
	}
	if len(list) == 0 {
		return nil, errors.New("it has no components")
	}
	return list, nil
}

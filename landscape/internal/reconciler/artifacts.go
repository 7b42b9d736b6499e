package reconciler

import (
	_ "embed" // for the list of components
	"encoding/xml"
	"errors"
	"net/http"
	"regexp"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// ArtifactsName is the name of the store of artifacts and the first part of its paths.
const ArtifactsName = "artifacts"

// components is the component list of every version.
//
//go:embed kyma-components.yaml
var components []byte

// Release is a released version with artifacts.
type Release struct {
	Version string `json:"version"`
}

// Artifacts simulates the public store of Kyma's artifacts: the list of components of each version
// (docs/contracts/reconciler.md#components). Development artifacts exist for every pull request and every commit on the main branch.
type Artifacts struct {
	*journal.Store
	releases *journal.Table[Release]
}

// NewArtifacts opens the simulator's journal at path ("" keeps all data in memory) and publishes releases.
func NewArtifacts(path string, releases ...string) (*Artifacts, error) {
	s := &Artifacts{releases: journal.NewTable[Release]("release")}
	store, err := journal.Open(path, s.releases)
	if err != nil {
		return nil, err
	}
	s.Store = store
	err = s.Update(func(tx *journal.Tx) error {
		for _, version := range releases {
			if _, ok := s.releases.Get(version); ok {
				continue
			}
			if err := s.releases.Put(tx, version, Release{Version: version}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Handler serves the paths under /artifacts.
func (s *Artifacts) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /artifacts/kyma-prow-artifacts/{version}/kyma-components.yaml", s.released)
	mux.HandleFunc("GET /artifacts/kyma-development-artifacts/{version}/kyma-components.yaml", s.development)
	return mux
}

func (s *Artifacts) released(w http.ResponseWriter, r *http.Request) {
	var ok bool
	s.View(func() { _, ok = s.releases.Get(r.PathValue("version")) })
	serveComponents(w, r, ok)
}

var developmentVersion = regexp.MustCompile(`^(PR-[0-9]+|main-[0-9a-f]{6,40})$`)

func (*Artifacts) development(w http.ResponseWriter, r *http.Request) {
	serveComponents(w, r, developmentVersion.MatchString(r.PathValue("version")))
}

// serveComponents answers like the store, which is public and rejects unknown credentials.
func serveComponents(w http.ResponseWriter, r *http.Request, ok bool) {
	switch {
	case contract.Query(r) != nil:
		refuseXML(w, http.StatusBadRequest, "InvalidArgument")
	case r.Header.Get("Authorization") != "":
		contract.Violation(r, "header Authorization: the store is public, credentials go to a foreign system")
		refuseXML(w, http.StatusUnauthorized, "AuthenticationRequired")
	case !ok:
		refuseXML(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("Content-Type", "text/yaml")
		_, _ = w.Write(components)
	}
}

func refuseXML(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
	}{Code: code})
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"sigs.k8s.io/yaml"
)

// fakecloud serves load balancers of the project's cloud, with the same owners and settings as the project's own backend: what the one
// controller made, the other one finds and has nothing to change.
type fakecloud struct {
	cloud
	URL   string `json:"url"`
	Token string `json:"token"`
	File  string `json:"tokenFile"`
}

type object = map[string]any

func newFakecloud(config io.Reader) (*fakecloud, error) {
	c := &fakecloud{}
	c.cloud = cloud{name: "fakecloud", balancer: c}
	if config == nil {
		return nil, errors.New("--cloud-config is needed")
	}
	raw, err := io.ReadAll(config)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(raw, c); err != nil {
		return nil, err
	}
	if c.File != "" {
		token, err := os.ReadFile(c.File)
		if err != nil {
			return nil, err
		}
		c.Token = strings.TrimSpace(string(token))
	}
	return c, nil
}

func (c *fakecloud) call(ctx context.Context, method, path string, body any) (int, object, error) {
	var raw io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		raw = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.URL, "/")+path, raw)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	if response.StatusCode >= 400 {
		return 0, nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	var found object
	if len(text) > 0 {
		err = json.Unmarshal(text, &found)
	}
	return response.StatusCode, found, err
}

func (c *fakecloud) find(ctx context.Context, cluster string, s *v1.Service) (object, error) {
	query := url.Values{"cluster": {cluster}, "owner": {string(s.UID)}}
	_, found, err := c.call(ctx, http.MethodGet, "/v1/load-balancers?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if items, ok := found["items"].([]any); ok && len(items) > 0 {
		return items[0].(object), nil
	}
	return nil, nil
}

func targets(nodes []*v1.Node) []any {
	listed := []any{}
	for _, node := range nodes {
		listed = append(listed, object{"server": strings.TrimPrefix(node.Spec.ProviderID, "fakecloud://")})
	}
	return listed
}

func wanted(s *v1.Service, nodes []*v1.Node) object {
	families, listeners, ranges := []any{}, []any{}, []any{}
	for _, family := range s.Spec.IPFamilies {
		families = append(families, string(family))
	}
	for _, port := range s.Spec.Ports {
		var name any
		if port.Name != "" {
			name = port.Name
		}
		listeners = append(listeners, object{"name": name, "protocol": string(port.Protocol), "port": port.Port, "targetPort": port.NodePort})
	}
	for _, one := range s.Spec.LoadBalancerSourceRanges {
		ranges = append(ranges, one)
	}
	return object{"families": families, "listeners": listeners, "targets": targets(nodes), "healthCheck": object{"protocol": "tcp"},
		"sourceRanges": ranges, "tags": object{"kubernetes.io/service": s.Namespace + "/" + s.Name}}
}

// holds says whether what the cloud has contains what is wanted; what it filled in by itself is its own affair.
func holds(existing, wanted any) bool {
	switch want := wanted.(type) {
	case object:
		have, ok := existing.(object)
		for name, value := range want {
			ok = ok && holds(have[name], value)
		}
		return ok
	case []any:
		have, ok := existing.([]any)
		ok = ok && len(have) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = holds(have[i], want[i])
		}
		return ok
	}
	return reflect.DeepEqual(existing, wanted)
}

// change sends what differs, and nothing when nothing does.
func (c *fakecloud) change(ctx context.Context, existing, want object) (object, error) {
	raw, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	var plain object
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	for name, value := range plain {
		if holds(existing[name], value) {
			delete(plain, name)
		}
	}
	if len(plain) == 0 {
		return existing, nil
	}
	_, changed, err := c.call(ctx, http.MethodPatch, "/v1/load-balancers/"+existing["id"].(string), plain)
	return changed, err
}

func published(balancer object) *v1.LoadBalancerStatus {
	mode, status := v1.LoadBalancerIPModeProxy, &v1.LoadBalancerStatus{}
	for _, one := range balancer["addresses"].([]any) {
		ip := one.(object)["address"].(string)
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: ip, IPMode: &mode})
	}
	return status
}

func (c *fakecloud) GetLoadBalancer(ctx context.Context, cluster string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	found, err := c.find(ctx, cluster, s)
	if err != nil || found == nil {
		return nil, false, err
	}
	return published(found), true, nil
}

func (c *fakecloud) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(s)
}

func (c *fakecloud) EnsureLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	found, err := c.find(ctx, cluster, s)
	if err != nil {
		return nil, err
	}
	want := wanted(s, nodes)
	if found != nil {
		found, err = c.change(ctx, found, want)
	} else {
		want["name"] = cloudprovider.DefaultLoadBalancerName(s)
		want["owner"] = object{"cluster": cluster, "uid": string(s.UID)}
		_, found, err = c.call(ctx, http.MethodPost, "/v1/load-balancers", want)
	}
	if err != nil {
		return nil, err
	}
	return published(found), nil
}

func (c *fakecloud) UpdateLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) error {
	found, err := c.find(ctx, cluster, s)
	if err != nil {
		return err
	}
	if found == nil {
		return errors.New("the load balancer is not there")
	}
	_, err = c.change(ctx, found, object{"targets": targets(nodes)})
	return err
}

func (c *fakecloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, s *v1.Service) error {
	found, err := c.find(ctx, cluster, s)
	if err != nil || found == nil {
		return err
	}
	_, _, err = c.call(ctx, http.MethodDelete, "/v1/load-balancers/"+found["id"].(string), nil)
	return err
}

"""A program with the Python client. Prints the name of each part that works. Argument: the URL of a workspace."""

import datetime
import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

TIMEOUT = 60


def main():
    config.load_kube_config()
    configuration = client.Configuration.get_default_copy()
    configuration.host = sys.argv[1]
    api = client.ApiClient(configuration)
    parts = [objects, pages, watches, resumption, definition, patches, applied, informer, lease, errors]
    for part in parts:
        part(api)
        print(part.__doc__)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"python": "yes"}), data=data)


def objects(api):
    """objects"""
    core = client.CoreV1Api(api)
    created = core.create_namespaced_config_map("default", config_map("one", a="1"))
    assert created.metadata.uid and created.metadata.resource_version
    created.data["a"] = "2"
    replaced = core.replace_namespaced_config_map("one", "default", created)
    assert replaced.data == {"a": "2"}
    assert replaced.metadata.resource_version != created.metadata.resource_version
    assert core.read_namespaced_config_map("one", "default").data == {"a": "2"}
    dry = core.create_namespaced_config_map("default", config_map("dry"), dry_run="All")
    assert dry.metadata.name == "dry"
    secret = client.V1Secret(metadata=client.V1ObjectMeta(generate_name="secret-"), string_data={"key": "value"})
    secret = core.create_namespaced_secret("default", secret)
    assert secret.data == {"key": "dmFsdWU="}, secret.data
    core.delete_namespaced_config_map("one", "default")
    names = [item.metadata.name for item in core.list_namespaced_config_map("default").items]
    assert "one" not in names and "dry" not in names, names


def pages(api):
    """pages"""
    core = client.CoreV1Api(api)
    for number in range(25):
        core.create_namespaced_config_map("default", config_map(f"page-{number:02}"))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map("default", label_selector="python=yes", limit=10, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number:02}" for number in range(25)], names
    core.delete_collection_namespaced_config_map("default", label_selector="python=yes")
    assert core.list_namespaced_config_map("default", label_selector="python=yes").items == []


def watches(api):
    """watch"""
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map("default", config_map("watched", count="0"))
    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, "default", label_selector="python=yes", timeout_seconds=TIMEOUT
    ):
        seen.append((event["type"], event["object"].data["count"]))
        if event["type"] == "ADDED":
            core.patch_namespaced_config_map("watched", "default", {"data": {"count": "1"}})
        elif event["type"] == "MODIFIED":
            core.delete_namespaced_config_map("watched", "default")
        else:
            stream.stop()
    assert seen == [("ADDED", "0"), ("MODIFIED", "1"), ("DELETED", "1")], seen


def resumption(api):
    """watch after a resumption"""
    core = client.CoreV1Api(api)
    version = core.list_namespaced_config_map("default").metadata.resource_version
    for number in range(5):
        core.create_namespaced_config_map("default", config_map(f"later-{number}"))
    names = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=TIMEOUT
    ):
        names.append((event["type"], event["object"].metadata.name))
        if len(names) == 5:
            stream.stop()
    assert names == [("ADDED", f"later-{number}") for number in range(5)], names


def definition(api):
    """definition"""
    extensions = client.ApiextensionsV1Api(api)
    schema = client.V1JSONSchemaProps(
        type="object",
        properties={
            "spec": client.V1JSONSchemaProps(
                type="object",
                properties={"length": client.V1JSONSchemaProps(type="integer", minimum=1, default=2)},
            ),
            "status": client.V1JSONSchemaProps(type="object", x_kubernetes_preserve_unknown_fields=True),
        },
    )
    version = client.V1CustomResourceDefinitionVersion(
        name="v1",
        served=True,
        storage=True,
        schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        subresources=client.V1CustomResourceSubresources(status={}),
    )
    names = client.V1CustomResourceDefinitionNames(
        plural="snakes", singular="snake", kind="Snake", list_kind="SnakeList"
    )
    extensions.create_custom_resource_definition(
        client.V1CustomResourceDefinition(
            metadata=client.V1ObjectMeta(name="snakes.zoo.example.com"),
            spec=client.V1CustomResourceDefinitionSpec(
                group="zoo.example.com", scope="Namespaced", names=names, versions=[version]
            ),
        )
    )
    stream = watch.Watch()
    for event in stream.stream(
        extensions.list_custom_resource_definition,
        field_selector="metadata.name=snakes.zoo.example.com",
        timeout_seconds=TIMEOUT,
    ):
        conditions = event["object"].status.conditions or []
        if any(one.type == "Established" and one.status == "True" for one in conditions):
            stream.stop()
    custom = client.CustomObjectsApi(api)
    where = ("zoo.example.com", "v1", "default", "snakes")
    snake = {"apiVersion": "zoo.example.com/v1", "kind": "Snake", "metadata": {"name": "kaa"}, "spec": {}}
    assert custom.create_namespaced_custom_object(*where, snake)["spec"] == {"length": 2}
    custom.patch_namespaced_custom_object_status(*where, "kaa", {"status": {"awake": True}})
    # The dynamic client finds the resource by discovery.
    snakes = dynamic.DynamicClient(api).resources.get(api_version="zoo.example.com/v1", kind="Snake")
    found = snakes.get(name="kaa", namespace="default")
    assert found.status.awake is True and found.spec.length == 2, found


def patches(api):
    """patches"""
    custom = client.CustomObjectsApi(api)
    where = ("zoo.example.com", "v1", "default", "snakes", "kaa")
    merged = custom.patch_namespaced_custom_object(*where, {"spec": {"length": 9}})
    assert merged["spec"]["length"] == 9, merged
    replaced = custom.patch_namespaced_custom_object(
        *where,
        [{"op": "replace", "path": "/spec/length", "value": 7}],
        _content_type="application/json-patch+json",
    )
    assert replaced["spec"]["length"] == 7, replaced
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map("default", config_map("patched", a="1", b="2"))
    patched = core.patch_namespaced_config_map("patched", "default", {"data": {"a": None, "c": "3"}})
    assert patched.data == {"b": "2", "c": "3"}, patched.data


def applied(api):
    """server-side apply"""
    snakes = dynamic.DynamicClient(api).resources.get(api_version="zoo.example.com/v1", kind="Snake")

    def apply(manager, length, **options):
        body = {"apiVersion": "zoo.example.com/v1", "kind": "Snake", "metadata": {"name": "nag"}}
        body["spec"] = {"length": length}
        return snakes.server_side_apply(body, namespace="default", field_manager=manager, **options)

    first = apply("one", 3)
    again = apply("one", 3)
    assert again.metadata.resourceVersion == first.metadata.resourceVersion, "nothing changed, nothing written"
    expect(409, apply, "two", 4)
    forced = apply("two", 4, force_conflicts=True)
    assert forced.spec.length == 4, forced
    assert [entry.manager for entry in forced.metadata.managedFields] == ["two"], forced
    core = client.CoreV1Api(api)
    for _ in range(2):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}
        options = {"field_manager": "one", "_content_type": "application/apply-patch+yaml"}
        made = core.patch_namespaced_config_map("applied", "default", body, **options)
        assert made.data == {"a": "1"}, made.data


def informer(api):
    """watch of the dynamic client"""
    snakes = dynamic.DynamicClient(api).resources.get(api_version="zoo.example.com/v1", kind="Snake")
    names = {item.metadata.name for item in snakes.get(namespace="default").items}
    assert names == {"kaa", "nag"}, names
    seen = []
    for event in snakes.watch(namespace="default", name="nag", timeout=TIMEOUT):
        seen.append(event["type"])
        if event["type"] == "ADDED":
            snakes.delete(name="nag", namespace="default")
        elif event["type"] == "DELETED":
            break
    assert seen == ["ADDED", "DELETED"], seen


def lease(api):
    """lease"""
    leases = client.CoordinationV1Api(api)
    now = datetime.datetime.now(datetime.timezone.utc)
    spec = client.V1LeaseSpec(holder_identity="first", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    held = leases.create_namespaced_lease(
        "default", client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=spec)
    )
    assert held.spec.renew_time == now, (held.spec.renew_time, now)
    other = leases.read_namespaced_lease("leader", "default")
    held.spec.renew_time = datetime.datetime.now(datetime.timezone.utc)
    leases.replace_namespaced_lease("leader", "default", held)
    # Another candidate that has read the lease before cannot take it.
    other.spec.holder_identity = "second"
    expect(409, leases.replace_namespaced_lease, "leader", "default", other)


def errors(api):
    """errors"""
    core = client.CoreV1Api(api)
    expect(404, core.read_namespaced_config_map, "absent", "default")
    expect(409, core.create_namespaced_config_map, "default", config_map("patched"))
    expect(422, core.create_namespaced_config_map, "default", config_map("Not_A_Name"))
    custom = client.CustomObjectsApi(api)
    where = ("zoo.example.com", "v1", "default", "snakes", "kaa")
    expect(422, custom.patch_namespaced_custom_object, *where, {"spec": {"length": 0}})


def expect(status, call, *arguments):
    try:
        call(*arguments)
    except ApiException as error:
        assert error.status == status, error
    else:
        raise AssertionError(f"{call.__name__} succeeded, not {status}")


main()

{{/*
Alerts and recording rules. Made by tools/render from alerts/: change them there.

files/rules.yaml has the defaults, and .Values.rules overrides them key by key: a release that is upgraded
with --reuse-values, and so lacks what is new, gets the defaults of the new chart.
*/}}
{{- define "gputally.rules.values" -}}
{{- mergeOverwrite (.Files.Get "files/rules.yaml" | fromYaml) (deepCopy (.Values.rules | default dict)) | toYaml -}}
{{- end -}}

{{- define "gputally.rules.groups" -}}
{{- $rules := include "gputally.rules.values" . | fromYaml -}}
{{- $settings := $rules.settings -}}
{{- $alerts := $rules.alerts -}}
groups:
  {{- if (index $rules.groups "gputally-prices").enabled }}
  - name: gputally-prices
    interval: 1m
    rules:
      {{- range $key, $value := $rules.tables.gpuHourPrices }}
      - record: gpu:gputally_price_row:per_hour
        expr: |-
          max by (cluster, node, gpu, uuid, model) (gputally_gpu_info{model=~"{{ $key }}"}) * {{ $value }}
        labels:
          pattern: '{{ $key }}'
      {{- end }}
      - record: gpu:gputally_price:per_hour
        expr: |2-
            max by (cluster, node, gpu, uuid, model) (gpu:gputally_price_row:per_hour)
          or
            max by (cluster, node, gpu, uuid, model) (gputally_gpu_info) * {{ $settings.gpuHourPrice }}
      - record: device:gputally_share:ratio
        expr: |2-
              max by (cluster, node, gpu, uuid, model) (gputally_gpu_info)
            unless on (cluster, node, uuid)
              label_replace(
                max by (cluster, node, parent_uuid) (gputally_mig_info),
                "uuid", "$1", "parent_uuid", "(.+)"
              )
          or
            sum by (cluster, node, gpu, uuid, model) (
                (
                      max by (cluster, node, gpu, uuid, parent_uuid) (
                          gputally_mig_memory_total_bytes
                        * on (cluster, node, uuid) group_left (parent_uuid)
                          max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)
                      )
                    / on (cluster, node, parent_uuid) group_left ()
                      sum by (cluster, node, parent_uuid) (
                        max by (cluster, node, gpu, uuid, parent_uuid) (
                            gputally_mig_memory_total_bytes
                          * on (cluster, node, uuid) group_left (parent_uuid)
                            max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)
                        )
                      )
                  or
                      max by (cluster, node, gpu, uuid, parent_uuid) (gputally_mig_info)
                    / on (cluster, node, parent_uuid) group_left ()
                      count by (cluster, node, parent_uuid) (
                        max by (cluster, node, gpu, uuid, parent_uuid) (gputally_mig_info)
                      )
                )
              * on (cluster, node, parent_uuid) group_left (model)
                label_replace(
                  max by (cluster, node, uuid, model) (gputally_gpu_info),
                  "parent_uuid", "$1", "uuid", "(.+)"
                )
            )
      - record: device:gputally_price:per_hour
        expr: |2-
            device:gputally_share:ratio
          * on (cluster, node, gpu, model) group_left ()
            max by (cluster, node, gpu, model) (gpu:gputally_price:per_hour)
      {{- range $key, $value := $rules.tables.namespaceBudgets }}
      - record: namespace:gputally_budget:per_day
        expr: |-
          vector({{ $value }})
        labels:
          namespace: '{{ $key }}'
      {{- end }}
      {{- range $key, $value := $rules.tables.nodePowerBudgets }}
      - record: node:gputally_power_budget_row:watts
        expr: |-
          max by (cluster, node) (gputally_gpu_up{node=~"{{ $key }}"}) * 0 + {{ $value }}
        labels:
          pattern: '{{ $key }}'
      {{- end }}
  {{- end }}
  {{- if (index $rules.groups "gputally-ledger").enabled }}
  - name: gputally-ledger
    interval: 1m
    rules:
      - record: pod:gputally_workload:info
        expr: |2-
            topk by (cluster, namespace, pod) (
              1,
              max by (cluster, namespace, pod, workload) (
                last_over_time(gputally_pod_info{workload!=""}[15m])
              )
            )
          or on (cluster, namespace, pod)
            clamp_min(max by (cluster, namespace, pod) (last_over_time(gputally_pod_active[15m])), 1)
      - record: gpu:gputally_energy:watts
        expr: |2-
            sum by (cluster, node, gpu, uuid) (
              rate(gputally_gpu_energy_joules_total[{{ $settings.rateWindow }}])
            )
          * on (cluster, node, uuid) group_left (model)
            max by (cluster, node, uuid, model) (gputally_gpu_info)
      - record: node:gputally_energy:watts
        expr: |-
          sum by (cluster, node) (gpu:gputally_energy:watts)
      - record: node:gputally_unattributed:watts
        expr: |-
          sum by (cluster, node, reason) (
            sum by (cluster, node, gpu, uuid, reason) (
              rate(
                gputally_gpu_unattributed_energy_joules_total{reason!~"initial|expired"}[{{ $settings.rateWindow }}]
              )
            )
          )
      - record: model:gputally_energy:watts
        expr: |-
          sum by (cluster, model) (gpu:gputally_energy:watts)
      - record: model:gputally_unattributed:watts
        expr: |-
          sum by (cluster, model, reason) (
              sum by (cluster, node, gpu, uuid, reason) (
                rate(
                  gputally_gpu_unattributed_energy_joules_total{reason!~"initial|expired"}[{{ $settings.rateWindow }}]
                )
              )
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: cluster:gputally_energy:watts
        expr: |-
          sum by (cluster) (node:gputally_energy:watts)
      - record: cluster:gputally_unattributed:watts
        expr: |-
          sum by (cluster, reason) (node:gputally_unattributed:watts)
      - record: pod:gputally_energy:watts
        expr: |2-
            sum by (cluster, node, namespace, pod) (
              rate(gputally_pod_energy_joules_total[{{ $settings.rateWindow }}])
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: host:gputally_energy:watts
        expr: |-
          sum by (cluster, node, owner) (rate(gputally_host_energy_joules_total[{{ $settings.rateWindow }}]))
      - record: workload:gputally_energy:watts
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_energy:watts)
      - record: namespace:gputally_energy:watts
        expr: |-
          sum by (cluster, namespace) (pod:gputally_energy:watts)
      - record: node:gputally_energy_cost:per_hour
        expr: |-
          node:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: node:gputally_co2:grams_per_hour
        expr: |-
          node:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: model:gputally_energy_cost:per_hour
        expr: |-
          model:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: model:gputally_co2:grams_per_hour
        expr: |-
          model:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: cluster:gputally_energy_cost:per_hour
        expr: |-
          cluster:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: cluster:gputally_co2:grams_per_hour
        expr: |-
          cluster:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: pod:gputally_energy_cost:per_hour
        expr: |-
          pod:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: pod:gputally_co2:grams_per_hour
        expr: |-
          pod:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: host:gputally_energy_cost:per_hour
        expr: |-
          host:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: host:gputally_co2:grams_per_hour
        expr: |-
          host:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: workload:gputally_energy_cost:per_hour
        expr: |-
          workload:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: workload:gputally_co2:grams_per_hour
        expr: |-
          workload:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: namespace:gputally_energy_cost:per_hour
        expr: |-
          namespace:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.kwhPrice }}
      - record: namespace:gputally_co2:grams_per_hour
        expr: |-
          namespace:gputally_energy:watts * {{ $settings.pue }} / 1000 * {{ $settings.co2GramsPerKwh }}
      - record: namespace:gputally_charged:watts
        expr: |-
          sum by (cluster, namespace, basis) (
            rate(gputally_pod_energy_joules_total[{{ $settings.rateWindow }}])
          )
      - record: host:gputally_charged:watts
        expr: |-
          sum by (cluster, node, owner, basis) (
            rate(gputally_host_energy_joules_total[{{ $settings.rateWindow }}])
          )
  {{- end }}
  {{- if (index $rules.groups "gputally-devices").enabled }}
  - name: gputally-devices
    interval: 1m
    rules:
      - record: device:gputally_utilization:ratio
        expr: |2-
            max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
          or
            max by (cluster, node, gpu, uuid) (gputally_mig_graphics_active_ratio)
      - record: device:gputally_pod_held:ratio
        expr: |-
          clamp_max(
            sum by (cluster, node, gpu, uuid, namespace, pod) (
              rate(gputally_pod_held_seconds_total[{{ $settings.rateWindow }}])
            ),
            1
          ) > 0
      - record: device:gputally_pod_busy:ratio
        expr: |-
          clamp_max(
            sum by (cluster, node, gpu, uuid, namespace, pod) (
              rate(gputally_pod_busy_seconds_total[{{ $settings.rateWindow }}])
            ),
            1
          )
      - record: device:gputally_pod_memory_used:bytes
        expr: |-
          sum by (cluster, node, gpu, uuid, namespace, pod) (
            max by (cluster, node, gpu, uuid, namespace, pod, container) (gputally_pod_memory_used_bytes)
          )
      - record: device:gputally_host_held:ratio
        expr: |-
          clamp_max(
            sum by (cluster, node, gpu, uuid, owner) (
              rate(gputally_host_held_seconds_total[{{ $settings.rateWindow }}])
            ),
            1
          ) > 0
      - record: device:gputally_host_busy:ratio
        expr: |-
          clamp_max(
            sum by (cluster, node, gpu, uuid, owner) (
              rate(gputally_host_busy_seconds_total[{{ $settings.rateWindow }}])
            ),
            1
          )
      - record: device:gputally_host_memory_used:bytes
        expr: |-
          max by (cluster, node, gpu, uuid, owner) (gputally_host_memory_used_bytes)
      - record: device:gputally_pod_part:ratio
        expr: |2-
            device:gputally_pod_held:ratio
          / on (cluster, node, gpu, uuid) group_left ()
            clamp_min(
              sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
              1
            )
      - record: device:gputally_host_part:ratio
        expr: |2-
            device:gputally_host_held:ratio
          / on (cluster, node, gpu, uuid) group_left ()
            clamp_min(
              sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
              1
            )
      - record: device:gputally_held:gpus
        expr: |2-
              device:gputally_share:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              clamp_max(
                sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_held:ratio"}),
                1
              )
          or
            device:gputally_share:ratio * 0
      - record: device:gputally_busy:gpus
        expr: |2-
              device:gputally_share:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              clamp_max(
                sum by (cluster, node, gpu, uuid) ({__name__=~"device:gputally_(pod|host)_busy:ratio"}),
                1
              )
          or
            device:gputally_held:gpus == 0
      - record: device:gputally_idle:gpus
        expr: |-
          clamp_min(device:gputally_held:gpus - device:gputally_busy:gpus, 0)
      - record: device:gputally_allocated:gpus
        expr: |2-
              device:gputally_share:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(pod|host)_active"})
          or
            device:gputally_share:ratio * 0
      - record: device:gputally_in_use:gpus
        expr: |2-
            device:gputally_share:ratio
          * on (cluster, node, gpu, uuid) group_left ()
            (max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(gpu|mig)_processes"}) > bool 0)
  {{- end }}
  {{- if (index $rules.groups "gputally-owners").enabled }}
  - name: gputally-owners
    interval: 1m
    rules:
      - record: pod:gputally_held:gpus
        expr: |2-
            sum by (cluster, node, namespace, pod) (
                device:gputally_pod_part:ratio
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: pod:gputally_busy:gpus
        expr: |2-
            sum by (cluster, node, namespace, pod) (
                device:gputally_pod_busy:ratio
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: pod:gputally_idle:gpus
        expr: |2-
            sum by (cluster, node, namespace, pod) (
                device:gputally_pod_part:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                (device:gputally_idle:gpus / (device:gputally_held:gpus > 0))
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: pod:gputally_gpu_cost:per_hour
        expr: |2-
            sum by (cluster, node, namespace, pod) (
                device:gputally_pod_part:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                device:gputally_price:per_hour
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: pod:gputally_idle_cost:per_hour
        expr: |2-
            sum by (cluster, node, namespace, pod) (
                device:gputally_pod_part:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                (device:gputally_idle:gpus / (device:gputally_held:gpus > 0))
              * on (cluster, node, gpu, uuid) group_left ()
                device:gputally_price:per_hour
            )
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: pod:gputally_cost:per_hour
        expr: |-
          sum by (cluster, node, namespace, pod, workload) (
            {__name__=~"pod:gputally_(gpu|energy)_cost:per_hour"}
          )
      - record: pod:gputally_memory_used:bytes
        expr: |2-
            sum by (cluster, node, namespace, pod) (device:gputally_pod_memory_used:bytes)
          * on (cluster, namespace, pod) group_left (workload)
            pod:gputally_workload:info
      - record: host:gputally_held:gpus
        expr: |-
          sum by (cluster, node, owner) (
              device:gputally_host_part:ratio
            * on (cluster, node, gpu, uuid) group_left (model)
              device:gputally_share:ratio
          )
      - record: host:gputally_busy:gpus
        expr: |-
          sum by (cluster, node, owner) (
              device:gputally_host_busy:ratio
            * on (cluster, node, gpu, uuid) group_left (model)
              device:gputally_share:ratio
          )
      - record: host:gputally_idle:gpus
        expr: |-
          sum by (cluster, node, owner) (
              device:gputally_host_part:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              (device:gputally_idle:gpus / (device:gputally_held:gpus > 0))
            * on (cluster, node, gpu, uuid) group_left (model)
              device:gputally_share:ratio
          )
      - record: host:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster, node, owner) (
              device:gputally_host_part:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              device:gputally_price:per_hour
          )
      - record: host:gputally_idle_cost:per_hour
        expr: |-
          sum by (cluster, node, owner) (
              device:gputally_host_part:ratio
            * on (cluster, node, gpu, uuid) group_left ()
              (device:gputally_idle:gpus / (device:gputally_held:gpus > 0))
            * on (cluster, node, gpu, uuid) group_left ()
              device:gputally_price:per_hour
          )
      - record: host:gputally_cost:per_hour
        expr: |-
          sum by (cluster, node, owner) ({__name__=~"host:gputally_(gpu|energy)_cost:per_hour"})
      - record: host:gputally_memory_used:bytes
        expr: |-
          sum by (cluster, node, owner) (device:gputally_host_memory_used:bytes)
      - record: pod:gputally_utilization:ratio
        expr: |-
          avg by (cluster, namespace, pod) (
              clamp_max(
                sum by (cluster, node, gpu, uuid, namespace, pod) (
                  max by (cluster, node, gpu, uuid, namespace, pod, container) (
                    gputally_pod_sm_utilization_ratio
                  )
                ),
                1
              )
            or on (cluster, node, gpu, uuid, namespace, pod)
                (max by (cluster, node, gpu, uuid, namespace, pod) (gputally_pod_active) == 1)
              * on (cluster, node, gpu, uuid) group_left ()
                device:gputally_utilization:ratio
          )
      - record: pod:gputally_utilization:percent
        expr: |-
          pod:gputally_utilization:ratio * 100
      - record: workload:gputally_held:gpus
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_held:gpus)
      - record: workload:gputally_busy:gpus
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_busy:gpus)
      - record: workload:gputally_idle:gpus
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_idle:gpus)
      - record: workload:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_gpu_cost:per_hour)
      - record: workload:gputally_idle_cost:per_hour
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_idle_cost:per_hour)
      - record: workload:gputally_cost:per_hour
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_cost:per_hour)
      - record: workload:gputally_memory_used:bytes
        expr: |-
          sum by (cluster, namespace, workload) (pod:gputally_memory_used:bytes)
      - record: namespace:gputally_held:gpus
        expr: |-
          sum by (cluster, namespace) (pod:gputally_held:gpus)
      - record: namespace:gputally_busy:gpus
        expr: |-
          sum by (cluster, namespace) (pod:gputally_busy:gpus)
      - record: namespace:gputally_idle:gpus
        expr: |-
          sum by (cluster, namespace) (pod:gputally_idle:gpus)
      - record: namespace:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster, namespace) (pod:gputally_gpu_cost:per_hour)
      - record: namespace:gputally_idle_cost:per_hour
        expr: |-
          sum by (cluster, namespace) (pod:gputally_idle_cost:per_hour)
      - record: namespace:gputally_cost:per_hour
        expr: |-
          sum by (cluster, namespace) (pod:gputally_cost:per_hour)
      - record: namespace:gputally_memory_used:bytes
        expr: |-
          sum by (cluster, namespace) (pod:gputally_memory_used:bytes)
      - record: namespace:gputally_utilization:ratio
        expr: |-
          avg by (cluster, namespace) (pod:gputally_utilization:ratio)
      - record: namespace:gputally_unrequested:gpus
        expr: |-
          sum by (cluster, namespace) (
              pod:gputally_held:gpus
            and on (cluster, namespace, pod)
              gputally_pod_info{requested="false"}
          )
  {{- end }}
  {{- if (index $rules.groups "gputally-fleet").enabled }}
  - name: gputally-fleet
    interval: 1m
    rules:
      - record: node:gputally_gpus:count
        expr: |-
          count by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_info))
      - record: node:gputally_gpus_up:count
        expr: |-
          sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_up))
      - record: node:gputally_gpus_allocated:count
        expr: |-
          sum by (cluster, node) (device:gputally_allocated:gpus)
      - record: node:gputally_gpus_in_use:count
        expr: |-
          sum by (cluster, node) (device:gputally_in_use:gpus)
      - record: node:gputally_gpus_free:count
        expr: |-
          clamp_min(node:gputally_gpus_up:count - node:gputally_gpus_allocated:count, 0)
      - record: node:gputally_utilization:ratio
        expr: |-
          avg by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio))
      - record: node:gputally_memory_used:bytes
        expr: |-
          sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_memory_used_bytes))
      - record: node:gputally_memory_total:bytes
        expr: |-
          sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes))
      - record: node:gputally_power:watts
        expr: |-
          sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts))
      - record: node:gputally_held:gpus
        expr: |-
          sum by (cluster, node) (device:gputally_held:gpus)
      - record: node:gputally_busy:gpus
        expr: |-
          sum by (cluster, node) (device:gputally_busy:gpus)
      - record: node:gputally_idle:gpus
        expr: |-
          sum by (cluster, node) (device:gputally_idle:gpus)
      - record: node:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster, node) (gpu:gputally_price:per_hour)
      - record: node:gputally_cost:per_hour
        expr: |-
          sum by (cluster, node) ({__name__=~"node:gputally_(gpu|energy)_cost:per_hour"})
      - record: node:gputally_unallocated_cost:per_hour
        expr: |-
          sum by (cluster, node) (
                device:gputally_price:per_hour
              *
                (1 - device:gputally_held:gpus / device:gputally_share:ratio)
            or
                sum by (cluster, node) (node:gputally_unattributed:watts)
              * {{ $settings.pue }}
              / 1000
              * {{ $settings.kwhPrice }}
          )
      - record: model:gputally_gpus:count
        expr: |-
          count by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_info)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_gpus_up:count
        expr: |-
          sum by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_up)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_gpus_allocated:count
        expr: |-
          sum by (cluster, model) (device:gputally_allocated:gpus)
      - record: model:gputally_gpus_in_use:count
        expr: |-
          sum by (cluster, model) (device:gputally_in_use:gpus)
      - record: model:gputally_gpus_free:count
        expr: |-
          clamp_min(model:gputally_gpus_up:count - model:gputally_gpus_allocated:count, 0)
      - record: model:gputally_utilization:ratio
        expr: |-
          avg by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_memory_used:bytes
        expr: |-
          sum by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_memory_used_bytes)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_memory_total:bytes
        expr: |-
          sum by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_power:watts
        expr: |-
          sum by (cluster, model) (
              max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts)
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
          )
      - record: model:gputally_held:gpus
        expr: |-
          sum by (cluster, model) (device:gputally_held:gpus)
      - record: model:gputally_busy:gpus
        expr: |-
          sum by (cluster, model) (device:gputally_busy:gpus)
      - record: model:gputally_idle:gpus
        expr: |-
          sum by (cluster, model) (device:gputally_idle:gpus)
      - record: model:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster, model) (gpu:gputally_price:per_hour)
      - record: model:gputally_cost:per_hour
        expr: |-
          sum by (cluster, model) ({__name__=~"model:gputally_(gpu|energy)_cost:per_hour"})
      - record: model:gputally_unallocated_cost:per_hour
        expr: |-
          sum by (cluster, model) (
                device:gputally_price:per_hour
              *
                (1 - device:gputally_held:gpus / device:gputally_share:ratio)
            or
                sum by (cluster, model) (model:gputally_unattributed:watts)
              * {{ $settings.pue }}
              / 1000
              * {{ $settings.kwhPrice }}
          )
      - record: cluster:gputally_gpus:count
        expr: |-
          sum by (cluster) (node:gputally_gpus:count)
      - record: cluster:gputally_gpus_up:count
        expr: |-
          sum by (cluster) (node:gputally_gpus_up:count)
      - record: cluster:gputally_gpus_allocated:count
        expr: |-
          sum by (cluster) (node:gputally_gpus_allocated:count)
      - record: cluster:gputally_gpus_in_use:count
        expr: |-
          sum by (cluster) (node:gputally_gpus_in_use:count)
      - record: cluster:gputally_gpus_free:count
        expr: |-
          sum by (cluster) (node:gputally_gpus_free:count)
      - record: cluster:gputally_utilization:ratio
        expr: |-
          avg by (cluster) (max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio))
      - record: cluster:gputally_memory_used:bytes
        expr: |-
          sum by (cluster) (node:gputally_memory_used:bytes)
      - record: cluster:gputally_memory_total:bytes
        expr: |-
          sum by (cluster) (node:gputally_memory_total:bytes)
      - record: cluster:gputally_power:watts
        expr: |-
          sum by (cluster) (node:gputally_power:watts)
      - record: cluster:gputally_held:gpus
        expr: |-
          sum by (cluster) (node:gputally_held:gpus)
      - record: cluster:gputally_busy:gpus
        expr: |-
          sum by (cluster) (node:gputally_busy:gpus)
      - record: cluster:gputally_idle:gpus
        expr: |-
          sum by (cluster) (node:gputally_idle:gpus)
      - record: cluster:gputally_gpu_cost:per_hour
        expr: |-
          sum by (cluster) (node:gputally_gpu_cost:per_hour)
      - record: cluster:gputally_cost:per_hour
        expr: |-
          sum by (cluster) (node:gputally_cost:per_hour)
      - record: cluster:gputally_unallocated_cost:per_hour
        expr: |-
          sum by (cluster) (node:gputally_unallocated_cost:per_hour)
      - record: model:gputally_gpus_by_utilization:count
        expr: |-
          count_values by (cluster, model) (
            "utilization",
            floor(
                max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
              * on (cluster, node, uuid) group_left (model)
                max by (cluster, node, uuid, model) (gputally_gpu_info)
              * 10
            ) / 10
          )
      - record: gpu:gputally_problem:severity
        expr: |2-
            (
                label_replace(
                  max by (cluster, node, gpu, uuid) (gputally_gpu_up == 0) * 0 + 3,
                  "problem", "lost: answers no more", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (
                    gputally_gpu_ecc_errors_total{lifetime="volatile",type="uncorrected"} > 0
                  ) * 0 + 3,
                  "problem", "memory errors, not corrected", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_failure == 1) * 0 + 3,
                  "problem", "no spare memory rows left", "uuid", ".*"
                )
              or
                label_replace(
                      max by (cluster, node, gpu, uuid) (gputally_gpu_recovery_action{action="none"} == 0)
                    * 0
                  + 3,
                  "problem", "driver asks for recovery", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (
                    gputally_gpu_xid_last_timestamp_seconds{xid=~"{{ join "|" $settings.xidCritical }}"} > time() - 3600
                  ) * 0 + 3,
                  "problem", "critical XID in the last hour", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (
                    gputally_gpu_throttle_active{reason="hw_thermal_slowdown"} == 1
                  ) * 0 + 2,
                  "problem", "slowed down, too hot", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (
                    gputally_gpu_throttle_active{reason="hw_power_brake_slowdown"} == 1
                  ) * 0 + 2,
                  "problem", "slowed down, power brake", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_pending == 1) * 0 + 2,
                  "problem", "memory row waits for a reset", "uuid", ".*"
                )
              or
                label_replace(
                  max by (cluster, node, gpu, uuid) (
                        max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
                      >= {{ $settings.hangUtilizationRatio }}
                    and
                          max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts)
                        /
                          max by (cluster, node, gpu, uuid) (gputally_gpu_power_limit_watts)
                      < {{ $settings.hangPowerRatio }}
                  ) * 0 + 1,
                  "problem", "busy at idle power: hangs?", "uuid", ".*"
                )
            )
          * on (cluster, node, uuid) group_left (model)
            max by (cluster, node, uuid, model) (gputally_gpu_info)
      - record: cluster:gputally_unrequested:gpus
        expr: |-
          sum by (cluster) (namespace:gputally_unrequested:gpus)
  {{- end }}
  {{- if (index $rules.groups "gputally-anomalies").enabled }}
  - name: gputally-anomalies
    interval: 1m
    rules:
      - record: gpu:gputally_anomaly:input
        expr: |-
          max by (cluster, node, gpu, uuid) (
            avg_over_time(gputally_gpu_utilization_ratio[{{ $settings.rateWindow }}])
          )
        labels:
          anomaly_name: 'gpu_utilization_ratio'
          anomaly_strategy: 'robust'
      - record: gpu:gputally_anomaly:input
        expr: |-
          sum by (cluster, node, gpu, uuid) (gpu:gputally_energy:watts)
        labels:
          anomaly_name: 'gpu_power_watts'
          anomaly_strategy: 'adaptive'
      - record: namespace:gputally_anomaly:input
        expr: |2-
            namespace:gputally_energy:watts
          or
            last_over_time(namespace:gputally_energy:watts[1d]) * 0
        labels:
          anomaly_name: 'namespace_power_watts'
          anomaly_strategy: 'adaptive'
      - record: namespace:gputally_anomaly:input
        expr: |2-
            namespace:gputally_held:gpus
          or
            last_over_time(namespace:gputally_held:gpus[1d]) * 0
        labels:
          anomaly_name: 'namespace_held_gpus'
          anomaly_strategy: 'robust'
      - record: gpu:gputally_anomaly:hourly
        expr: |2-
            avg_over_time(gpu:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
          or
            quantile_over_time(0.5, gpu:gputally_anomaly:input{anomaly_strategy="robust"}[1h])
      - record: gpu:gputally_anomaly:center
        expr: |2-
            gpu:gputally_anomaly:hourly{anomaly_strategy="adaptive"} offset 30m
          or
            quantile_over_time(0.5, gpu:gputally_anomaly:hourly{anomaly_strategy="robust"}[1d:15m])
      - record: gpu:gputally_anomaly:deviation
        expr: |2-
            stddev_over_time(gpu:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
          or
            abs(
                gpu:gputally_anomaly:input{anomaly_strategy="robust"}
              -
                gpu:gputally_anomaly:center{anomaly_strategy="robust"}
            )
      - record: gpu:gputally_anomaly:margin
        expr: |2-
            (
                    {{ $settings.anomalyDeviations }}
                  *
                    (
                        avg_over_time(gpu:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m])
                      or
                        quantile_over_time(
                          0.5,
                          gpu:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                        )
                    )
                >
                  (
                        {{ $settings.anomalyMarginRatio }} * gpu:gputally_anomaly:center
                      >
                        {{ $settings.anomalyFloorRatio }} * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                    or
                      {{ $settings.anomalyFloorRatio }} * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                    or
                      {{ $settings.anomalyMarginRatio }} * gpu:gputally_anomaly:center
                  )
              or
                (
                      {{ $settings.anomalyMarginRatio }} * gpu:gputally_anomaly:center
                    >
                      {{ $settings.anomalyFloorRatio }} * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                  or
                    {{ $settings.anomalyFloorRatio }} * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                  or
                    {{ $settings.anomalyMarginRatio }} * gpu:gputally_anomaly:center
                )
              or
                  {{ $settings.anomalyDeviations }}
                *
                  (
                      avg_over_time(gpu:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m])
                    or
                      quantile_over_time(
                        0.5,
                        gpu:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                      )
                  )
            )
          and
            gpu:gputally_anomaly:hourly offset 1d
      - record: gpu:gputally_anomaly:highest
        expr: |-
          (
                (
                      gpu:gputally_anomaly:center
                    >
                      max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    gpu:gputally_anomaly:center
                )
              >
                max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
            or
              max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
            or
              (
                    gpu:gputally_anomaly:center
                  >
                    max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  gpu:gputally_anomaly:center
              )
          )
      - record: gpu:gputally_anomaly:upper
        expr: |2-
            clamp_max(
              gpu:gputally_anomaly:highest{anomaly_name=~".+_ratio"} + gpu:gputally_anomaly:margin,
              1
            )
          or
            gpu:gputally_anomaly:highest + gpu:gputally_anomaly:margin
      - record: gpu:gputally_anomaly:lower
        expr: |-
          clamp_min(
              (
                    (
                          gpu:gputally_anomaly:center
                        <
                          min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                      or
                        min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                      or
                        gpu:gputally_anomaly:center
                    )
                  <
                    min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
                or
                  min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
                or
                  (
                        gpu:gputally_anomaly:center
                      <
                        min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      gpu:gputally_anomaly:center
                  )
              )
            -
              gpu:gputally_anomaly:margin,
            0
          )
      - record: namespace:gputally_anomaly:hourly
        expr: |2-
            avg_over_time(namespace:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
          or
            quantile_over_time(0.5, namespace:gputally_anomaly:input{anomaly_strategy="robust"}[1h])
      - record: namespace:gputally_anomaly:center
        expr: |2-
            namespace:gputally_anomaly:hourly{anomaly_strategy="adaptive"} offset 30m
          or
            quantile_over_time(0.5, namespace:gputally_anomaly:hourly{anomaly_strategy="robust"}[1d:15m])
      - record: namespace:gputally_anomaly:deviation
        expr: |2-
            stddev_over_time(namespace:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
          or
            abs(
                namespace:gputally_anomaly:input{anomaly_strategy="robust"}
              -
                namespace:gputally_anomaly:center{anomaly_strategy="robust"}
            )
      - record: namespace:gputally_anomaly:margin
        expr: |2-
            (
                    {{ $settings.anomalyDeviations }}
                  *
                    (
                        avg_over_time(
                          namespace:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m]
                        )
                      or
                        quantile_over_time(
                          0.5,
                          namespace:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                        )
                    )
                >
                  (
                        {{ $settings.anomalyMarginRatio }} * namespace:gputally_anomaly:center
                      >
                          {{ $settings.anomalyFloorRatio }}
                        *
                          max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                    or
                      {{ $settings.anomalyFloorRatio }} * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                    or
                      {{ $settings.anomalyMarginRatio }} * namespace:gputally_anomaly:center
                  )
              or
                (
                      {{ $settings.anomalyMarginRatio }} * namespace:gputally_anomaly:center
                    >
                      {{ $settings.anomalyFloorRatio }} * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                  or
                    {{ $settings.anomalyFloorRatio }} * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                  or
                    {{ $settings.anomalyMarginRatio }} * namespace:gputally_anomaly:center
                )
              or
                  {{ $settings.anomalyDeviations }}
                *
                  (
                      avg_over_time(
                        namespace:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m]
                      )
                    or
                      quantile_over_time(
                        0.5,
                        namespace:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                      )
                  )
            )
          and
            namespace:gputally_anomaly:hourly offset 1d
      - record: namespace:gputally_anomaly:highest
        expr: |-
          (
                (
                      namespace:gputally_anomaly:center
                    >
                      max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    namespace:gputally_anomaly:center
                )
              >
                max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
            or
              max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
            or
              (
                    namespace:gputally_anomaly:center
                  >
                    max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  namespace:gputally_anomaly:center
              )
          )
      - record: namespace:gputally_anomaly:upper
        expr: |2-
            clamp_max(
                namespace:gputally_anomaly:highest{anomaly_name=~".+_ratio"}
              +
                namespace:gputally_anomaly:margin,
              1
            )
          or
            namespace:gputally_anomaly:highest + namespace:gputally_anomaly:margin
      - record: namespace:gputally_anomaly:lower
        expr: |-
          clamp_min(
              (
                    (
                          namespace:gputally_anomaly:center
                        <
                          min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                      or
                        min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                      or
                        namespace:gputally_anomaly:center
                    )
                  <
                    min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
                or
                  min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
                or
                  (
                        namespace:gputally_anomaly:center
                      <
                        min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      namespace:gputally_anomaly:center
                  )
              )
            -
              namespace:gputally_anomaly:margin,
            0
          )
      {{- with $alerts.GPUTallyAnomalyGpu }}
      {{- if .enabled }}
      - alert: GPUTallyAnomalyGpu
        expr: |2-
            (
                label_replace(
                  gpu:gputally_anomaly:input < gpu:gputally_anomaly:lower,
                  "band", "lower", "anomaly_name", ".*"
                )
              and on (cluster, node, gpu, uuid)
                (
                    {__name__=~"device:gputally_(pod|host)_held:ratio"}
                  and
                    {__name__=~"device:gputally_(pod|host)_held:ratio"} offset 1d
                )
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is less active than usual.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} is below the band of its own past: {{`{{ $labels.anomaly_name }}`}} is {{`{{ $value | humanize }}`}}. It has the same user as a day ago. Check whether the work on it hangs or has run out of input.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyAnomalyGpu.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyAnomalyNamespace }}
      {{- if .enabled }}
      - alert: GPUTallyAnomalyNamespace
        expr: |2-
            label_replace(
              namespace:gputally_anomaly:input > namespace:gputally_anomaly:upper,
              "band", "upper", "anomaly_name", ".*"
            )
          or
            label_replace(
              namespace:gputally_anomaly:input < namespace:gputally_anomaly:lower,
              "band", "lower", "anomaly_name", ".*"
            )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU use of namespace {{`{{ $labels.namespace }}`}} is unusual.
          description: |-
            Namespace {{`{{ $labels.namespace }}`}} is outside the {{`{{ $labels.band }}`}} band of its own past: {{`{{ $labels.anomaly_name }}`}} is {{`{{ $value | humanize }}`}}. If this was not planned, check which pods started or ended.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyAnomalyNamespace.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if or $alerts.GPUTallyExporterDown.enabled $alerts.GPUTallyAllExportersDown.enabled $alerts.GPUTallyExporterAbsent.enabled $alerts.GPUTallyDriverUnavailable.enabled $alerts.GPUTallyGpuLost.enabled $alerts.GPUTallyGpusMissing.enabled $alerts.GPUTallySnapshotStale.enabled }}
  - name: gputally-availability
    rules:
      {{- with $alerts.GPUTallyExporterDown }}
      {{- if .enabled }}
      - alert: GPUTallyExporterDown
        expr: |2-
            max by (cluster, node) (up{job="{{ $settings.job }}"}) == 0
          unless on (cluster)
            (max by (cluster) (up{job="{{ $settings.job }}"}) == 0)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Exporter on {{`{{ $labels.node }}`}} is down.
          description: |-
            Prometheus has not been able to scrape the exporter on node {{`{{ $labels.node }}`}} for 10 minutes. Nothing is known about the node's GPUs, and no alert about them can fire. Check whether the node is up; if it is, read the exporter's log.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyExporterDown.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyAllExportersDown }}
      {{- if .enabled }}
      - alert: GPUTallyAllExportersDown
        expr: |2-
            count by (cluster) (up{job="{{ $settings.job }}"} == 0)
          unless on (cluster)
            (max by (cluster) (up{job="{{ $settings.job }}"}) == 1)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            All exporters{{`{{ with $labels.cluster }}`}} of cluster {{`{{ . }}`}}{{`{{ end }}`}} are down.
          description: |-
            None of the {{`{{ $value }}`}} exporters{{`{{ with $labels.cluster }}`}} of cluster {{`{{ . }}`}}{{`{{ end }}`}} has responded to a scrape for 5 minutes. No alert about a GPU can fire. Look for a common cause: the network, a new version or a changed setting.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyAllExportersDown.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyExporterAbsent }}
      {{- if .enabled }}
      - alert: GPUTallyExporterAbsent
        expr: |-
          absent(up{job="{{ $settings.job }}"})
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Prometheus has no exporter among its scrape targets.
          description: |-
            Prometheus has had no target of job {{`{{ $labels.job }}`}} for 10 minutes. No alert about a GPU can fire. Check that GPUTally is deployed and that the scrape configuration finds its pods.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyExporterAbsent.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyDriverUnavailable }}
      {{- if .enabled }}
      - alert: GPUTallyDriverUnavailable
        expr: |2-
            max by (cluster, node) (
              gputally_source_up{source=~"nvml|nvidia-smi|amdgpu|rocm-smi|simulated"}
            ) == 0
          and on (cluster, node)
            (
                max by (cluster, node) (gputally_gpu_info)
              or
                  max by (cluster, node) (max_over_time(gputally_source_gpus[{{ $settings.gpuCountWindow }}]))
                > 0
            )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU driver on {{`{{ $labels.node }}`}} is unavailable.
          description: |-
            No source has been able to read the GPUs of node {{`{{ $labels.node }}`}} for 5 minutes: the driver hangs, has been unloaded, or cannot be reached by the exporter. Work on these GPUs may have failed, and no alert about them can fire. Run nvidia-smi or rocm-smi on the node.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyDriverUnavailable.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyGpuLost }}
      {{- if .enabled }}
      - alert: GPUTallyGpuLost
        expr: |2-
            (
                max by (cluster, node, gpu, uuid) (gputally_gpu_up) == 0
              and on (cluster, node)
                max by (cluster, node) (
                  gputally_source_up{source=~"nvml|nvidia-smi|amdgpu|rocm-smi|simulated"}
                ) == 1
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is lost: its driver cannot reach it.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has not responded for 2 minutes, while its driver does. Work on it has failed. Drain the node, then reset the GPU or power the node off and on.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyGpuLost.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyGpusMissing }}
      {{- if .enabled }}
      - alert: GPUTallyGpusMissing
        expr: |2-
                max by (cluster, node, source) (
                  max_over_time(gputally_source_gpus[{{ $settings.gpuCountWindow }}])
                )
              -
                max by (cluster, node, source) (gputally_source_gpus)
            > 0
          and on (cluster, node, source)
            max by (cluster, node, source) (gputally_source_up) == 1
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Node {{`{{ $labels.node }}`}} has fewer GPUs than before.
          description: |-
            Node {{`{{ $labels.node }}`}} has {{`{{ $value }}`}} GPU(s) fewer than earlier in the last {{ $settings.gpuCountWindow }}, according to source {{`{{ $labels.source }}`}}. Pods cannot use them. If they were not removed on purpose, look for them with lspci and in the kernel log. This alert ends {{ $settings.gpuCountWindow }} after the GPUs disappeared.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyGpusMissing.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallySnapshotStale }}
      {{- if .enabled }}
      - alert: GPUTallySnapshotStale
        expr: |2-
            abs(time() - max by (cluster, node) (gputally_snapshot_timestamp_seconds))
          > {{ $settings.snapshotStaleSeconds }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Exporter on {{`{{ $labels.node }}`}} serves stale values, or its clock is wrong.
          description: |-
            The values of node {{`{{ $labels.node }}`}} are {{`{{ $value | humanizeDuration }}`}} away from Prometheus's clock. Dashboards and alerts show a past state. Compare the clocks first; if they agree, the exporter is stuck: restart it.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallySnapshotStale.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if (index $rules.groups "gputally-health").enabled }}
  - name: gputally-health
    rules:
      - record: gpu:gputally_gpu_nvlink_up:sum
        expr: |2-
            (
              sum by (cluster, node, gpu, uuid) (
                max by (cluster, node, gpu, uuid, link) (gputally_gpu_nvlink_up)
              )
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
      - record: gpu:gputally_gpu_xgmi_up:sum
        expr: |2-
            (
              sum by (cluster, node, gpu, uuid) (
                max by (cluster, node, gpu, uuid, link) (gputally_gpu_xgmi_up)
              )
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
      {{- with $alerts.GPUTallyXidCritical }}
      {{- if .enabled }}
      - alert: GPUTallyXidCritical
        expr: |2-
            (
                  time()
                -
                  max by (cluster, node, gpu, uuid, xid) (
                    max_over_time(
                      gputally_gpu_xid_last_timestamp_seconds{xid=~"{{ join "|" $settings.xidCritical }}"}[{{ $settings.xidWindowSeconds }}s]
                    )
                  )
              < {{ $settings.xidWindowSeconds }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} reported critical XID {{`{{ $labels.xid }}`}}.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} reported XID {{`{{ $labels.xid }}`}} {{`{{ $value | humanizeDuration }}`}} ago. Work on it has failed or will fail. Drain the node and follow the runbook for this code.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyXidCritical.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyXidWarning }}
      {{- if .enabled }}
      - alert: GPUTallyXidWarning
        expr: |2-
            (
                  time()
                -
                  max by (cluster, node, gpu, uuid, xid) (
                    max_over_time(
                      gputally_gpu_xid_last_timestamp_seconds{xid=~"{{ join "|" $settings.xidWarning }}"}[{{ $settings.xidWindowSeconds }}s]
                    )
                  )
              < {{ $settings.xidWindowSeconds }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} reported minor XID {{`{{ $labels.xid }}`}}.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} reported XID {{`{{ $labels.xid }}`}} {{`{{ $value | humanizeDuration }}`}} ago. One job may have failed; the GPU is still usable. Follow the runbook for this code.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyXidWarning.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyUncorrectableEcc }}
      {{- if .enabled }}
      - alert: GPUTallyUncorrectableEcc
        expr: |2-
            (
                max by (cluster, node, gpu, uuid) (
                  gputally_gpu_ecc_errors_total{lifetime="volatile",type="uncorrected"}
                ) > 0
              unless on (cluster, node, uuid)
                gputally_gpu_ras_errors_total
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: reset
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has uncorrectable memory errors.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has had {{`{{ $value }}`}} uncorrectable memory error(s) since its driver was loaded. Results computed on it may be wrong. Schedule no new work on it, and reset it when its jobs have ended.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyUncorrectableEcc.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRowRemapFailure }}
      {{- if .enabled }}
      - alert: GPUTallyRowRemapFailure
        expr: |2-
            (max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_failure) == 1)
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has no spare memory rows left.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} could not replace a faulty memory row. More memory errors will follow. Drain the node and have the card replaced.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRowRemapFailure.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRowRemapPending }}
      {{- if .enabled }}
      - alert: GPUTallyRowRemapPending
        expr: |2-
            (max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_pending) == 1)
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: reset
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} needs a reset to replace a memory row.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has a faulty memory row that is replaced at its next reset. Reset it when its jobs have ended.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRowRemapPending.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRetiredPagesPending }}
      {{- if .enabled }}
      - alert: GPUTallyRetiredPagesPending
        expr: |2-
            (max by (cluster, node, gpu, uuid) (gputally_gpu_retired_pages_pending) == 1)
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: reset
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} needs a reset to retire memory pages.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has faulty memory pages that stay in use until its next reset. Reset it when its jobs have ended.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRetiredPagesPending.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRecoveryNeeded }}
      {{- if .enabled }}
      - alert: GPUTallyRecoveryNeeded
        expr: |2-
            (
              max by (cluster, node, gpu, uuid, recovery) (
                label_replace(
                  gputally_gpu_recovery_action{action!="none"} == 1,
                  "recovery", "$1", "action", "(.+)"
                )
              )
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} needs the recovery action that its driver reports.
          description: |-
            The driver reports that GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} needs {{`{{ $labels.recovery }}`}}. Until then work on it fails or is not safe. Drain the node and carry out this action.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRecoveryNeeded.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyThermalSlowdown }}
      {{- if .enabled }}
      - alert: GPUTallyThermalSlowdown
        expr: |2-
            (
              max by (cluster, node, gpu, uuid) (
                avg_over_time(gputally_gpu_throttle_active{reason="hw_thermal_slowdown"}[5m])
              ) >= {{ $settings.throttleRatio }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is slowed down by its thermal protection.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} was slowed down by its thermal protection for {{`{{ $value | humanizePercentage }}`}} of the last 5 minutes. Work on it runs at half speed or less. Check fans, air flow and room temperature.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyThermalSlowdown.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyPowerBrake }}
      {{- if .enabled }}
      - alert: GPUTallyPowerBrake
        expr: |2-
            (
              max by (cluster, node, gpu, uuid) (
                avg_over_time(gputally_gpu_throttle_active{reason="hw_power_brake_slowdown"}[5m])
              ) >= {{ $settings.throttleRatio }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is slowed down by the server's power brake.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} was slowed down by the server's power brake for {{`{{ $value | humanizePercentage }}`}} of the last 5 minutes. A power supply has failed or is overloaded. Read the BMC's log.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyPowerBrake.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyTemperatureNearLimit }}
      {{- if .enabled }}
      - alert: GPUTallyTemperatureNearLimit
        expr: |2-
            (
              (
                  max by (cluster, node, gpu, uuid) (
                    avg_over_time(gputally_gpu_temperature_margin_celsius[5m])
                  )
                or
                    max by (cluster, node, gpu, uuid) (gputally_gpu_temperature_slowdown_celsius)
                  -
                    max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_temperature_celsius[5m]))
              ) < {{ $settings.temperatureMarginCelsius }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is near its temperature limit.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} is {{`{{ printf "%.0f" $value }}`}} degrees below the temperature at which it slows itself down. Check fans, air flow and room temperature before it does.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyTemperatureNearLimit.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyMemoryTemperatureNearLimit }}
      {{- if .enabled }}
      - alert: GPUTallyMemoryTemperatureNearLimit
        expr: |2-
            (
                  max by (cluster, node, gpu, uuid) (gputally_gpu_sensor_critical_celsius{sensor="mem"})
                -
                  max by (cluster, node, gpu, uuid) (
                    avg_over_time(gputally_gpu_sensor_celsius{sensor="mem"}[5m])
                  )
              < {{ $settings.temperatureMarginCelsius }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Memory of GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is near its temperature limit.
          description: |-
            The memory of GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} is {{`{{ printf "%.0f" $value }}`}} degrees below its critical temperature, at which the GPU slows down. Check fans, air flow and room temperature.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyMemoryTemperatureNearLimit.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyNvlinkCrcErrors }}
      {{- if .enabled }}
      - alert: GPUTallyNvlinkCrcErrors
        expr: |2-
            (
              max by (cluster, node, gpu, uuid) (
                rate(gputally_gpu_nvlink_errors_total{type=~"crc_.*"}[5m])
              ) >= {{ $settings.nvlinkCrcPerSecond }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has many NVLink CRC errors.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has {{`{{ $value | humanize }}`}} CRC errors per second on one of its NVLinks: packets are sent again. Jobs on several GPUs are slow. Plan a reset, and a repair if the errors return.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNvlinkCrcErrors.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyNvlinkErrors }}
      {{- if .enabled }}
      - alert: GPUTallyNvlinkErrors
        expr: |2-
            (
              sum by (cluster, node, gpu, uuid) (
                max by (cluster, node, gpu, uuid, link, type) (
                  increase(gputally_gpu_nvlink_errors_total{type!~"crc_.*"}[1h])
                )
              ) > 0
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has NVLink errors other than CRC.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} had {{`{{ printf "%.0f" $value }}`}} NVLink errors other than CRC in the last hour: replays, recoveries or corrupt packets. A link may be failing. Find it with nvidia-smi nvlink -e.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNvlinkErrors.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyNvlinkDown }}
      {{- if .enabled }}
      - alert: GPUTallyNvlinkDown
        expr: |2-
                max_over_time(gpu:gputally_gpu_nvlink_up:sum[{{ $settings.linkWindow }}])
              -
                gpu:gputally_gpu_nvlink_up:sum
            > 0
          or
            (
                    max by (cluster, node, model) (gpu:gputally_gpu_nvlink_up:sum)
                  - on (cluster, node, model) group_right ()
                    gpu:gputally_gpu_nvlink_up:sum
                > 0
              and
                gpu:gputally_gpu_nvlink_up:sum > 0
            )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has NVLinks that are down.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has {{`{{ $value }}`}} NVLink(s) fewer than earlier in the last {{ $settings.linkWindow }}, or than the other GPUs of its model on the node. Jobs on several GPUs fail or are very slow. Drain the node and reset its GPUs.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNvlinkDown.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyXgmiDown }}
      {{- if .enabled }}
      - alert: GPUTallyXgmiDown
        expr: |2-
                max_over_time(gpu:gputally_gpu_xgmi_up:sum[{{ $settings.linkWindow }}])
              -
                gpu:gputally_gpu_xgmi_up:sum
            > 0
          or
            (
                    max by (cluster, node, model) (gpu:gputally_gpu_xgmi_up:sum)
                  - on (cluster, node, model) group_right ()
                    gpu:gputally_gpu_xgmi_up:sum
                > 0
              and
                gpu:gputally_gpu_xgmi_up:sum > 0
            )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: drain
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has XGMI links that are down.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has {{`{{ $value }}`}} XGMI link(s) fewer than earlier in the last {{ $settings.linkWindow }}, or than the other GPUs of its model on the node. Jobs on several GPUs fail or are very slow. Drain the node and restart it.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyXgmiDown.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyPcieDegraded }}
      {{- if .enabled }}
      - alert: GPUTallyPcieDegraded
        expr: |2-
            (
                    max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_pcie_width[15m]))
                  /
                    max by (cluster, node, gpu, uuid) (gputally_gpu_pcie_width_max)
                  *
                      2
                    ^
                      (
                          max by (cluster, node, gpu, uuid) (
                            max_over_time(gputally_gpu_pcie_generation[15m])
                          )
                        -
                          max by (cluster, node, gpu, uuid) (gputally_gpu_pcie_generation_max)
                      )
                < 1
              and
                  max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_utilization_ratio[15m]))
                >= {{ $settings.pcieBusyRatio }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is busy on a PCIe link below its full speed.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} is busy, and its PCIe link reached at most {{`{{ $value | humanizePercentage }}`}} of its bandwidth. Loading and copying data is slow. Reseat the card or its riser at the next service.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyPcieDegraded.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyPcieReplays }}
      {{- if .enabled }}
      - alert: GPUTallyPcieReplays
        expr: |2-
            (
                max by (cluster, node, gpu, uuid) (rate(gputally_gpu_pcie_replays_total[5m])) * 60
              > {{ $settings.pcieReplaysPerMinute }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has many PCIe replays.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has {{`{{ $value | humanize }}`}} PCIe replays per minute, because of a bad contact, riser or slot. It may fall off the bus. Reseat the card at the next service.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyPcieReplays.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallySuspectedHang }}
      {{- if .enabled }}
      - alert: GPUTallySuspectedHang
        expr: |2-
            (
                    max by (cluster, node, gpu, uuid) (max_over_time(gputally_gpu_power_watts[5m]))
                  /
                    (
                        max by (cluster, node, gpu, uuid) (gputally_gpu_power_enforced_limit_watts)
                      or
                        max by (cluster, node, gpu, uuid) (gputally_gpu_power_limit_watts)
                    )
                < {{ $settings.hangPowerRatio }}
              and
                  max by (cluster, node, gpu, uuid) (min_over_time(gputally_gpu_utilization_ratio[5m]))
                >= {{ $settings.hangUtilizationRatio }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is busy at idle power: its job may hang.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has been busy without a break for 15 minutes, at no more than {{`{{ $value | humanizePercentage }}`}} of its power limit. A kernel that waits for another GPU looks like this. Find the owner with gputally whose, and check whether the job makes progress.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallySuspectedHang.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRasUncorrected }}
      {{- if .enabled }}
      - alert: GPUTallyRasUncorrected
        expr: |2-
            (
              sum by (cluster, node, gpu, uuid) (
                sum by (cluster, node, gpu, uuid, type) (
                  max by (cluster, node, gpu, uuid, block, type) (
                    (gputally_gpu_ras_errors_total{type="uncorrected"})
                  )
                )
              ) > 0
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: reset
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has uncorrectable RAS errors.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} has had {{`{{ $value }}`}} uncorrectable error(s) since its driver was loaded. Results computed on it may be wrong. Schedule no new work on it, and reset it when its jobs have ended.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRasUncorrected.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyRasErrors }}
      {{- if .enabled }}
      - alert: GPUTallyRasErrors
        expr: |2-
            (
                sum by (cluster, node, gpu, uuid, type) (
                  max by (cluster, node, gpu, uuid, block, type) (
                    increase(gputally_gpu_ras_errors_total{type="deferred"}[1h])
                  )
                ) > 0
              or
                sum by (cluster, node, gpu, uuid, type) (
                  max by (cluster, node, gpu, uuid, block, type) (
                    increase(gputally_gpu_ras_errors_total{type="corrected"}[1h])
                  )
                ) > {{ $settings.rasCorrectedPerHour }}
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} has deferred or many corrected RAS errors.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} had {{`{{ printf "%.0f" $value }}`}} {{`{{ $labels.type }}`}} errors in the last hour. Deferred errors become uncorrectable when the data is used. Have the card inspected before that.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyRasErrors.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if or $alerts.GPUTallyMemoryNearlyFull.enabled $alerts.GPUTallyMemoryLeak.enabled $alerts.GPUTallyNoFreeGpu.enabled }}
  - name: gputally-saturation
    rules:
      {{- with $alerts.GPUTallyMemoryNearlyFull }}
      {{- if .enabled }}
      - alert: GPUTallyMemoryNearlyFull
        expr: |2-
              (
                    1
                  -
                      max by (cluster, node, gpu, uuid) (gputally_gpu_memory_free_bytes)
                    /
                      max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes)
                > {{ $settings.memoryFullRatio }}
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
          or
              (
                    1
                  -
                      max by (cluster, node, gpu, uuid) (gputally_mig_memory_free_bytes)
                    /
                      max by (cluster, node, gpu, uuid) (gputally_mig_memory_total_bytes)
                > {{ $settings.memoryFullRatio }}
              )
            * on (cluster, node, uuid) group_left (parent_uuid)
              max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)
            * on (cluster, node, parent_uuid) group_left (pci_bus_id, model)
              label_replace(
                max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info),
                "parent_uuid", "$1", "uuid", "(.+)"
              )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Memory of GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is nearly full.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} ({{`{{ $labels.uuid }}`}}) has had {{`{{ $value | humanizePercentage }}`}} of its memory in use for 15 minutes. Further allocations fail. gputally_pod_memory_used_bytes shows which pods use it.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyMemoryNearlyFull.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyMemoryLeak }}
      {{- if .enabled }}
      - alert: GPUTallyMemoryLeak
        expr: |-
          max by (cluster, node, namespace, pod) (
                  predict_linear(
                    device:gputally_pod_memory_used:bytes[1h30m],
                    {{ $settings.leakHorizonHours }} * 3600
                  )
                -
                  device:gputally_pod_memory_used:bytes
              > on (cluster, node, gpu, uuid) group_left ()
                (
                    max by (cluster, node, gpu, uuid) (gputally_gpu_memory_free_bytes)
                  or
                    max by (cluster, node, gpu, uuid) (gputally_mig_memory_free_bytes)
                )
            and
              device:gputally_pod_memory_used:bytes > device:gputally_pod_memory_used:bytes offset 30m
            and
                device:gputally_pod_memory_used:bytes offset 30m
              >
                device:gputally_pod_memory_used:bytes offset 1h
            and
                device:gputally_pod_memory_used:bytes offset 1h
              >
                device:gputally_pod_memory_used:bytes offset 1h30m
            and
              device:gputally_pod_memory_used:bytes offset 2h
          )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} may leak GPU memory.
          description: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} on node {{`{{ $labels.node }}`}} has used more GPU memory every half hour. It will need {{`{{ $value | humanize1024 }}`}}B more in {{ $settings.leakHorizonHours }} hours, which is more than its GPU has free, and will run out of memory. Save its work and restart it.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyMemoryLeak.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyNoFreeGpu }}
      {{- if .enabled }}
      - alert: GPUTallyNoFreeGpu
        expr: |-
          cluster:gputally_gpus_free:count < 0.01
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            No GPU{{`{{ with $labels.cluster }}`}} of cluster {{`{{ . }}`}}{{`{{ end }}`}} is free.
          description: |-
            No GPU{{`{{ with $labels.cluster }}`}} of cluster {{`{{ . }}`}}{{`{{ end }}`}} has been free for 30 minutes. New pods that request one stay pending. The dashboard Idle GPUs shows which pods hold GPUs without using them.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNoFreeGpu.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if or $alerts.GPUTallyHeldIdle.enabled $alerts.GPUTallyHeldIdleLong.enabled $alerts.GPUTallyHeldUnderused.enabled $alerts.GPUTallyUnrequestedUse.enabled $alerts.GPUTallyUnattributedProcesses.enabled $alerts.GPUTallyGpusUnallocated.enabled }}
  - name: gputally-efficiency
    interval: 2m
    rules:
      {{- with $alerts.GPUTallyHeldIdle }}
      {{- if .enabled }}
      - alert: GPUTallyHeldIdle
        expr: |-
          count by (cluster, node, namespace, pod) (
              (
                    sum_over_time(device:gputally_pod_busy:ratio[{{ $settings.idleWindow }}])
                  /
                    sum_over_time(device:gputally_pod_held:ratio[{{ $settings.idleWindow }}])
                or on (cluster, node, gpu, uuid, namespace, pod)
                    (device:gputally_pod_held:ratio > bool 0)
                  * on (cluster, node, gpu, uuid) group_left ()
                    max_over_time(device:gputally_utilization:ratio[{{ $settings.idleWindow }}])
              ) <= {{ $settings.idleBusyRatio }}
            and on (cluster, node, gpu, uuid, namespace, pod)
              device:gputally_pod_held:ratio
            and on (cluster, node, gpu, uuid, namespace, pod)
              last_over_time(
                device:gputally_pod_held:ratio{namespace!~"{{ $settings.exemptNamespaces }}"}[15m]
                  offset {{ $settings.idleWindow }}
              )
          )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} holds idle GPUs.
          description: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} on node {{`{{ $labels.node }}`}} has held {{`{{ $value }}`}} GPU(s) for {{ $settings.idleWindow }} and left them idle. Nothing else can use them. Delete the pod if its work is done; read its log if it hangs.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyHeldIdle.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyHeldIdleLong }}
      {{- if .enabled }}
      - alert: GPUTallyHeldIdleLong
        expr: |-
          count by (cluster, node, namespace, pod) (
              (
                    sum_over_time(device:gputally_pod_busy:ratio[{{ $settings.idleLongWindow }}])
                  /
                    sum_over_time(device:gputally_pod_held:ratio[{{ $settings.idleLongWindow }}])
                or on (cluster, node, gpu, uuid, namespace, pod)
                    (device:gputally_pod_held:ratio > bool 0)
                  * on (cluster, node, gpu, uuid) group_left ()
                    max_over_time(device:gputally_utilization:ratio[{{ $settings.idleLongWindow }}])
              ) <= {{ $settings.idleBusyRatio }}
            and on (cluster, node, gpu, uuid, namespace, pod)
              device:gputally_pod_held:ratio
            and on (cluster, node, gpu, uuid, namespace, pod)
              last_over_time(
                device:gputally_pod_held:ratio{namespace!~"{{ $settings.exemptNamespaces }}"}[15m]
                  offset {{ $settings.idleLongWindow }}
              )
          )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} has held idle GPUs for a long time.
          description: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} on node {{`{{ $labels.node }}`}} has held {{`{{ $value }}`}} GPU(s) for {{ $settings.idleLongWindow }} and left them idle. Other work could use them. Delete the pod, or exempt its namespace if it has to stay.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyHeldIdleLong.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyHeldUnderused }}
      {{- if .enabled }}
      - alert: GPUTallyHeldUnderused
        expr: |-
          count by (cluster, node, namespace, pod) (
              (
                    sum_over_time(device:gputally_pod_busy:ratio[{{ $settings.underusedWindow }}])
                  /
                    sum_over_time(device:gputally_pod_held:ratio[{{ $settings.underusedWindow }}])
                or on (cluster, node, gpu, uuid, namespace, pod)
                    (device:gputally_pod_held:ratio > bool 0)
                  * on (cluster, node, gpu, uuid) group_left ()
                    max_over_time(device:gputally_utilization:ratio[{{ $settings.underusedWindow }}])
              ) <= {{ $settings.underusedBusyRatio }}
            and on (cluster, node, gpu, uuid, namespace, pod)
              device:gputally_pod_held:ratio
            and on (cluster, node, gpu, uuid, namespace, pod)
              last_over_time(
                device:gputally_pod_held:ratio{namespace!~"{{ $settings.exemptNamespaces }}"}[15m]
                  offset {{ $settings.underusedWindow }}
              )
          )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} is rarely busy on its GPUs.
          description: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} on node {{`{{ $labels.node }}`}} has held {{`{{ $value }}`}} GPU(s) for {{ $settings.underusedWindow }} and was busy for less than {{ $settings.underusedBusyRatio }} of that time. A shared GPU or a MIG device would be enough: change its request.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyHeldUnderused.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyUnrequestedUse }}
      {{- if .enabled }}
      - alert: GPUTallyUnrequestedUse
        expr: |2-
            count by (cluster, node, namespace, pod) (
              max by (cluster, node, gpu, uuid, namespace, pod) (
                gputally_pod_processes{namespace!~"{{ $settings.exemptNamespaces }}"}
              ) > 0
            )
          and on (cluster, namespace, pod)
            max by (cluster, namespace, pod) (gputally_pod_info{requested="false"})
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} uses GPUs that it did not request.
          description: |-
            Pod {{`{{ $labels.namespace }}`}}/{{`{{ $labels.pod }}`}} on node {{`{{ $labels.node }}`}} has had processes on {{`{{ $value }}`}} GPU(s) for 10 minutes, and the kubelet allocated none to it. It takes memory and time from the pods to which they are allocated. Add a GPU request to the pod, or stop it.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyUnrequestedUse.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyUnattributedProcesses }}
      {{- if .enabled }}
      - alert: GPUTallyUnattributedProcesses
        expr: |-
          count by (cluster, node, reason) (
            max by (cluster, node, gpu, uuid, reason) (gputally_gpu_unattributed_memory_used_bytes) > 0
          )
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Unattributed processes are using GPUs on {{`{{ $labels.node }}`}}.
          description: |-
            On node {{`{{ $labels.node }}`}}, processes without a known owner use memory on {{`{{ $value }}`}} GPU(s) (reason: {{`{{ $labels.reason }}`}}). Their energy and GPU time are charged to no owner. Run gputally whose PID on the node; the usual cause is a privilege that the exporter lacks.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyUnattributedProcesses.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyGpusUnallocated }}
      {{- if .enabled }}
      - alert: GPUTallyGpusUnallocated
        expr: |2-
                min_over_time(model:gputally_gpus_free:count[{{ $settings.unusedWindow }}])
              /
                model:gputally_gpus:count
            > {{ $settings.unusedRatio }}
          and
            last_over_time(model:gputally_gpus:count[1h] offset {{ $settings.unusedWindow }})
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Some {{`{{ $labels.model }}`}} GPUs were never allocated.
          description: |-
            {{`{{ $value | humanizePercentage }}`}} of the {{`{{ $labels.model }}`}} GPUs were free at every moment of the last {{ $settings.unusedWindow }}. Return them, switch them off or assign them to other work.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyGpusUnallocated.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if or $alerts.GPUTallyNodePowerOverBudget.enabled $alerts.GPUTallyNamespaceOverBudget.enabled $alerts.GPUTallyUnattributedEnergy.enabled $alerts.GPUTallyEnergyCounterStuck.enabled }}
  - name: gputally-energy
    rules:
      {{- with $alerts.GPUTallyNodePowerOverBudget }}
      {{- if .enabled }}
      - alert: GPUTallyNodePowerOverBudget
        expr: |2-
            node:gputally_energy:watts
          > on (cluster, node)
            min by (cluster, node) (node:gputally_power_budget_row:watts)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            GPUs on {{`{{ $labels.node }}`}} draw more power than the node's budget.
          description: |-
            The GPUs of node {{`{{ $labels.node }}`}} have drawn {{`{{ $value | humanize }}`}}W for 10 minutes, more than the node's power budget. A circuit breaker may trip. Lower their power limits (nvidia-smi -pl).
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNodePowerOverBudget.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyNamespaceOverBudget }}
      {{- if .enabled }}
      - alert: GPUTallyNamespaceOverBudget
        expr: |2-
            sum_over_time(namespace:gputally_cost:per_hour[1d]) / 60
          > on (namespace) group_left ()
            namespace:gputally_budget:per_day
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: team
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Namespace {{`{{ $labels.namespace }}`}} is over its daily GPU budget.
          description: |-
            Namespace {{`{{ $labels.namespace }}`}} has cost {{`{{ $value | printf "%.2f" }}`}} in the last 24 hours (GPUs and energy), more than its daily budget. Review its most expensive pods and its idle GPUs.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyNamespaceOverBudget.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyUnattributedEnergy }}
      {{- if .enabled }}
      - alert: GPUTallyUnattributedEnergy
        expr: |2-
              avg_over_time(node:gputally_unattributed:watts{reason="unknown"}[1h])
            / on (cluster, node)
              avg_over_time(node:gputally_energy:watts[1h])
          > {{ $settings.unknownEnergyRatio }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Much of the GPU energy on {{`{{ $labels.node }}`}} is unattributed.
          description: |-
            {{`{{ $value | humanizePercentage }}`}} of the GPU energy of node {{`{{ $labels.node }}`}} in the last hour went to processes without a known owner. Bills are too low by that share. Run gputally check on the node; the usual cause is a privilege that the exporter lacks.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyUnattributedEnergy.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyEnergyCounterStuck }}
      {{- if .enabled }}
      - alert: GPUTallyEnergyCounterStuck
        expr: |2-
            (
                    sum by (cluster, node, gpu, uuid) (rate(gputally_gpu_energy_joules_total[15m]))
                  /
                    max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_power_watts[15m]))
                < {{ $settings.energyCounterRatio }}
              and on (cluster, node, gpu, uuid)
                max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_power_watts[15m])) > 10
              and on (cluster, node)
                (
                    max by (cluster, node) (max_over_time(gputally_snapshot_age_seconds[15m])) < 60
                  and on (cluster, node)
                    max by (cluster, node) (gputally_snapshot_timestamp_seconds) > time() - 120
                )
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Energy counter of GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} is stuck.
          description: |-
            GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} draws power, and its energy counter counts {{`{{ $value | humanizePercentage }}`}} of it. Its energy and the bills of its users are too low. Restart the exporter, which then measures by power.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyEnergyCounterStuck.md
      {{- end }}
      {{- end }}
  {{- end }}
  {{- if or $alerts.GPUTallySourceFailing.enabled $alerts.GPUTallyReadErrors.enabled $alerts.GPUTallySourceSlow.enabled $alerts.GPUTallyCheckpointFailing.enabled $alerts.GPUTallyLedgerError.enabled $alerts.GPUTallyScrapeSlow.enabled $alerts.GPUTallyTooManySamples.enabled $alerts.GPUTallyExporterRestarting.enabled $alerts.GPUTallyEnergyUnobserved.enabled }}
  - name: gputally-exporter
    rules:
      {{- with $alerts.GPUTallySourceFailing }}
      {{- if .enabled }}
      - alert: GPUTallySourceFailing
        expr: |2-
            max by (cluster, node, source) (
              gputally_source_up{source!~"state_file|{{ $settings.optionalSources }}"}
            ) == 0
          and on (cluster, node)
            max by (cluster, node) (
              gputally_source_up{source=~"nvml|nvidia-smi|amdgpu|rocm-smi|simulated"}
            ) == 1
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Source {{`{{ $labels.source }}`}} on {{`{{ $labels.node }}`}} is failing.
          description: |-
            The source {{`{{ $labels.source }}`}} on node {{`{{ $labels.node }}`}} has been failing for 15 minutes. The data that only this source provides is missing. Read the exporter's log for the reason and the fix.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallySourceFailing.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyReadErrors }}
      {{- if .enabled }}
      - alert: GPUTallyReadErrors
        expr: |2-
              sum by (cluster, node, source) (increase(gputally_source_errors_total[15m]))
            > {{ $settings.valueErrors }}
          unless on (cluster, node)
            (gputally_gpu_up == 0)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Source {{`{{ $labels.source }}`}} on {{`{{ $labels.node }}`}} has many read errors.
          description: |-
            On node {{`{{ $labels.node }}`}}, {{`{{ printf "%.0f" $value }}`}} values from source {{`{{ $labels.source }}`}} failed or were implausible in 15 minutes. These samples are missing. The labels field and error of gputally_source_errors_total show which values, and why.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyReadErrors.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallySourceSlow }}
      {{- if .enabled }}
      - alert: GPUTallySourceSlow
        expr: |2-
              sum by (cluster, node, source) (increase(gputally_source_overruns_total[15m]))
            > {{ $settings.sourceOverruns }}
          and on (cluster, node, source)
            max by (cluster, node, source) (max_over_time(gputally_source_up[15m])) == 1
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Source {{`{{ $labels.source }}`}} on {{`{{ $labels.node }}`}} is often too slow.
          description: |-
            On node {{`{{ $labels.node }}`}}, source {{`{{ $labels.source }}`}} was too slow {{`{{ printf "%.0f" $value }}`}} times in 15 minutes, and its values were stale. A driver that stalls often fails next: read the kernel log.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallySourceSlow.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyCheckpointFailing }}
      {{- if .enabled }}
      - alert: GPUTallyCheckpointFailing
        expr: |-
          max by (cluster, node) (gputally_source_up{source="state_file"}) == 0
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Exporter on {{`{{ $labels.node }}`}} cannot save its ledger.
          description: |-
            The exporter on node {{`{{ $labels.node }}`}} has not been able to write its state file for 10 minutes. If it restarts now, energy and GPU-seconds start again from zero. Check the disk and the file's permissions.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyCheckpointFailing.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyLedgerError }}
      {{- if .enabled }}
      - alert: GPUTallyLedgerError
        expr: |-
          max by (cluster, node, gpu) (
            abs(
                sum by (cluster, node, instance, gpu) (gputally_gpu_energy_joules_total)
              -
                sum by (cluster, node, instance, gpu) (
                  {__name__=~"gputally_(pod|host|gpu_unattributed)_energy_joules_total"}
                )
            )
          ) > {{ $settings.ledgerToleranceJoules }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Ledger of GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} differs from its energy counter.
          description: |-
            The charges for GPU {{`{{ $labels.gpu }}`}} on node {{`{{ $labels.node }}`}} differ from its energy counter by {{`{{ printf "%.1f" $value }}`}} J. Bills are wrong until the cause is found. Either series are lost on the way to Prometheus, or GPUTally has a bug: follow the runbook.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyLedgerError.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyScrapeSlow }}
      {{- if .enabled }}
      - alert: GPUTallyScrapeSlow
        expr: |2-
            max by (cluster, node) (avg_over_time(scrape_duration_seconds{job="{{ $settings.job }}"}[10m]))
          > {{ $settings.scrapeSlowSeconds }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Scrapes of the exporter on {{`{{ $labels.node }}`}} are slow.
          description: |-
            A scrape of node {{`{{ $labels.node }}`}} takes {{`{{ $value | humanizeDuration }}`}}; a healthy exporter responds within milliseconds. Scrapes are about to time out. Check the exporter's CPU limit and the network.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyScrapeSlow.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyTooManySamples }}
      {{- if .enabled }}
      - alert: GPUTallyTooManySamples
        expr: |-
          max by (cluster, node) (scrape_samples_scraped{job="{{ $settings.job }}"}) > {{ $settings.samplesMax }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Exporter on {{`{{ $labels.node }}`}} exposes too many series.
          description: |-
            A scrape of node {{`{{ $labels.node }}`}} has {{`{{ $value | humanize }}`}} samples, which costs Prometheus memory. The usual causes are per-process metrics and many short-lived pods: turn --process-metrics off, or shorten --retention.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyTooManySamples.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyExporterRestarting }}
      {{- if .enabled }}
      - alert: GPUTallyExporterRestarting
        expr: |2-
            sum by (cluster, node) (changes(process_start_time_seconds{job="{{ $settings.job }}"}[1h]))
          > {{ $settings.restartsPerHour }}
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Exporter on {{`{{ $labels.node }}`}} restarts repeatedly.
          description: |-
            The exporter on node {{`{{ $labels.node }}`}} restarted {{`{{ $value }}`}} times in an hour. Energy used in between is unattributed. Find the cause with kubectl describe pod and in the log of the previous container.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyExporterRestarting.md
      {{- end }}
      {{- end }}
      {{- with $alerts.GPUTallyEnergyUnobserved }}
      {{- if .enabled }}
      - alert: GPUTallyEnergyUnobserved
        expr: |2-
            (
                    sum by (cluster, node, gpu, uuid) (
                      increase(gputally_gpu_unattributed_energy_joules_total{reason="unobserved"}[1h])
                    )
                  /
                    sum by (cluster, node, gpu, uuid) (increase(gputally_gpu_energy_joules_total[1h]))
                > {{ $settings.unobservedRatio }}
              unless on (cluster, node)
                (changes(process_start_time_seconds{job="{{ $settings.job }}"}[1h]) > 0)
              unless on (cluster, node, uuid)
                (min_over_time(gputally_gpu_up[1h]) == 0)
            )
          * on (cluster, node, uuid) group_left (pci_bus_id, model)
            max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
        for: {{ .for }}
        {{- with .keepFiringFor }}
        keep_firing_for: {{ . }}
        {{- end }}
        labels:
          severity: {{ .severity }}
          action: none
          audience: oncall
          {{- with $rules.additionalRuleLabels }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        annotations:
          summary: |-
            Much of the energy of GPU {{`{{ $labels.gpu }}`}} on {{`{{ $labels.node }}`}} was not observed.
          description: |-
            {{`{{ $value | humanizePercentage }}`}} of the energy of GPU {{`{{ $labels.gpu }}`}} ({{`{{ $labels.model }}`}}, {{`{{ $labels.pci_bus_id }}`}}) on node {{`{{ $labels.node }}`}} in the last hour is unattributed, because the exporter took no sample for a minute or longer. Bills are too low by that share. Look for a driver that hangs, or for too little CPU.
          runbook_url: {{ $rules.runbookUrl }}/GPUTallyEnergyUnobserved.md
      {{- end }}
      {{- end }}
  {{- end }}
{{- end -}}

// What a dashboard's JSON must be: the types of @grafana/schema, as they stand in a file.
import type { AnnotationQuery, Dashboard } from "@grafana/schema";

/** In JSON a member of an enumeration is its value. */
type Plain<T> = T extends string
  ? `${T}`
  : T extends readonly (infer Item)[]
    ? Plain<Item>[]
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

/** Prometheus's data source has the query of an annotation beside the keys that all data sources share. */
interface Marks extends AnnotationQuery {
  expr: string;
  step: string;
  titleFormat: string;
  textFormat: string;
  useValueForTime: boolean;
}

export type DashboardFile = Plain<Omit<Dashboard, "annotations">> & { annotations: { list: Plain<Marks>[] } };

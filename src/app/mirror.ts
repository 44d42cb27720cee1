import { HealthStore } from '../health/health-store.ts';
import { Mirror, type MirrorOptions } from '../orders/reading/mirror.ts';

/** Opens the mirror with its freshness and alarms; creates the file or migrates its schema. Throws `storage-…`. */
export function openMirror(options: Omit<MirrorOptions, 'health'>): Mirror {
  return new Mirror({ ...options, health: (file) => new HealthStore(file) });
}

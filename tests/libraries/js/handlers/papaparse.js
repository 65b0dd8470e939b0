import Papa from "papaparse";

export default () => JSON.stringify(Papa.parse('id,name\n1,"Ada, L."', { header: true }).data);
